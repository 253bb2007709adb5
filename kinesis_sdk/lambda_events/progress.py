"""Memory of processed records, so that user records that Lambda delivers again are not processed again.

The user records of a Kinesis record are processed in order, up to the first failure. So one number for each Kinesis record is enough: the
number of its processed user records.
"""

from __future__ import annotations

from typing import Protocol

from kinesis_sdk.common.validation import check_int


class Progress(Protocol):
    """Remembers the number of processed user records of a Kinesis record.

    `RecentProgress` keeps it in memory. Implement this protocol over a database, for example a DynamoDB table with expiring items,
    for a memory that all execution environments of a function share.
    """

    def load(self, key: str) -> int:
        """Return the number of processed user records of a Kinesis record; 0 if unknown.

        An error makes the Kinesis record fail before any of its user records is processed.

        Args:
            key: Stream ARN, shard id and sequence number as one text.
        """
        ...

    def store(self, key: str, processed: int) -> None:
        """Remember the progress; called once for each Kinesis record, after its last user record or its first failure.

        An error is logged. The records may then be processed again.

        Args:
            key: As for `load`.
            processed: Number of leading user records of the Kinesis record that need not be processed again: processed records, and dropped
                repetitions between them.
        """
        ...


class RecentProgress:
    """The progress of the most recent Kinesis records, in the memory of one execution environment.

    Args:
        max_records: Number of Kinesis records that are remembered; 1 to 10,000,000. Each takes about 300 bytes.

    Raises:
        ConfigError: If ``max_records`` is out of range.
    """

    def __init__(self, max_records: int = 20_000) -> None:
        check_int("max_records", max_records, 1, 10_000_000)
        self._max_records = max_records
        self._processed: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._processed)

    def load(self, key: str) -> int:
        """See `Progress.load`."""
        return self._processed.get(key, 0)

    def store(self, key: str, processed: int) -> None:
        """See `Progress.store`; beyond ``max_records``, forgets the record whose progress was stored longest ago."""
        self._processed.pop(key, None)
        self._processed[key] = processed
        if len(self._processed) > self._max_records:
            del self._processed[next(iter(self._processed))]
