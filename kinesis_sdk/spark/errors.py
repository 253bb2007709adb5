"""Errors of the Spark data source.

```
KinesisSdkError
├── OffsetError (ValueError)   the checkpoint contains an offset that this version cannot read
├── DataLossError              records that the checkpoint needs are or may be deleted
└── StalledError               a shard does not return records that it must have
```
"""

from __future__ import annotations

from kinesis_sdk.common.errors import KinesisSdkError


class OffsetError(KinesisSdkError, ValueError):
    """The checkpoint contains an offset of another source, or of a newer version of this one."""


class DataLossError(KinesisSdkError):
    """Records that the checkpoint needs are or may be deleted. Raised only with ``failOnDataLoss=true``.

    Attributes:
        shard_id: The shard; None if the whole stream is affected.
    """

    def __init__(self, message: str, *, shard_id: str | None = None) -> None:
        super().__init__(
            f"{message}. Set failOnDataLoss to false to log this and continue with the remaining data, "
            "or start with a new checkpoint"
        )
        self.shard_id = shard_id


class StalledError(KinesisSdkError):
    """A shard returned no error, but did not return the records of a range within ``retryTimeout``."""
