"""Errors of the Spark data source.

```
KinesisSdkError
├── OffsetError (ValueError)   an offset in a checkpoint that this version can not read
├── DataLossError              records are gone that the checkpoint still needs, or may be
└── StalledError               the service does not bring what it must have
```
"""

from __future__ import annotations

from kinesis_sdk.common.errors import KinesisSdkError


class OffsetError(KinesisSdkError, ValueError):
    """An offset that is not of this source, or of a newer version of it."""


class DataLossError(KinesisSdkError):
    """Records that the checkpoint needs are gone, or may be; raised with ``failOnDataLoss`` only.

    Attributes:
        shard_id: The shard; None where the whole stream is concerned.
    """

    def __init__(self, message: str, *, shard_id: str | None = None) -> None:
        super().__init__(
            f"{message}. Set failOnDataLoss to false to log this and go on with what is left, "
            "or start with a new checkpoint"
        )
        self.shard_id = shard_id


class StalledError(KinesisSdkError):
    """A shard did not bring the records of a range within ``retryTimeout``, without any error."""
