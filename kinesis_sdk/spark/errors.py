"""Errors of the Spark data source.

```
KinesisSdkError
├── OffsetError (ValueError)   the checkpoint contains an offset that this version cannot read
├── DataLossError              records that the checkpoint needs are or may be deleted
├── MalformedValueError        a value does not fit the schema (mode=FAILFAST)
└── StalledError               a shard does not return records that it must have
```
"""

from __future__ import annotations

import logging
from contextlib import ContextDecorator

from kinesis_sdk.common.errors import KinesisSdkError

_LOGGER = logging.getLogger(__name__)


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


class MalformedValueError(KinesisSdkError, ValueError):
    """The value of a record does not fit the schema. Raised only with ``mode=FAILFAST``.

    Attributes:
        shard_id: Shard of the record.
        sequence_number: Sequence number of the Kinesis record.
    """

    def __init__(self, flaw: str, *, shard_id: str, sequence_number: str) -> None:
        super().__init__(
            f"the value of a record of shard {shard_id}, sequence number {sequence_number}, is malformed: {flaw}. "
            "mode=PERMISSIVE returns it with null fields, and its text in a column _corrupt_record"
        )
        self.shard_id = shard_id
        self.sequence_number = sequence_number


class StalledError(KinesisSdkError):
    """A shard returned no error, but did not return the records of a range within ``retryTimeout``."""


class BriefErrors(ContextDecorator):
    """Raises the package's errors without their causes and without the stack frames of the package.

    Spark prints all causes and frames before the message. For an unreachable endpoint, the message would otherwise follow more than a
    hundred lines. The full traceback is in the log at level INFO. Other errors are defects, and are raised with their traceback.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, KinesisSdkError):
            _LOGGER.info("traceback of an error that Spark shows", exc_info=error)
            raise error.with_traceback(None) from None
