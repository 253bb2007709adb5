"""Where records go that nothing can be done for any more: `FailedRecord`, and who is told.

Two hooks, for two needs. ``on_send_error`` is the voice of `Producer.send`, which hands out no futures: without it
(and without ``on_record_failed``) such failures are logged. ``on_record_failed`` gets *every* record that is not stored, however
it was put, to keep it somewhere: a `FileSpool` is one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_sdk.common.stream import StreamId

if TYPE_CHECKING:
    from kinesis_sdk.producer.pending import Settled
    from kinesis_sdk.producer.record import PendingRecord

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class FailedRecord:
    """A record that is not stored, with everything that is needed to put it again.

    Attributes:
        stream: Name or ARN, as `put` takes it.
        partition_key: The user's partition key.
        explicit_hash_key: Canonical decimal text if the user gave one.
        data: Payload; left out of ``repr``.
        error: Why: a `RecordFailedError` with the real cause as ``__cause__`` and all attempts.
    """

    stream: str
    partition_key: str
    explicit_hash_key: str | None
    data: bytes = field(repr=False)
    error: BaseException


FailureHook = Callable[[FailedRecord], object]
"""Called once for each failed record, on a thread that the producer needs: keep it short. It may call ``put``, which does not
wait for room there, but not ``flush`` or ``close``."""


class FailureHooks:
    """Tells the hooks about failed records. Thread-safe as far as the hooks are; never raises.

    Args:
        on_send_error: For records of `Producer.send`.
        on_record_failed: For all records.
    """

    def __init__(self, on_send_error: FailureHook | None, on_record_failed: FailureHook | None) -> None:
        self._on_send_error = on_send_error
        self._on_record_failed = on_record_failed
        self._silent = 0
        self._broken = 0

    def notify(self, stream: StreamId, settled: Iterable[Settled]) -> None:
        """Hand failed records over. Call it before they are resolved, which releases their payload."""
        for records, stored, error, *_ in settled:
            if stored is None and error is not None:
                for record in records:
                    self._notify(stream, record, error)

    def _notify(self, stream: StreamId, record: PendingRecord, error: BaseException) -> None:
        hooks = [self._on_record_failed]
        if record.sent_blind:
            hooks.append(self._on_send_error)
        told = False
        for hook in hooks:
            if hook is None:
                continue
            try:
                hook(
                    FailedRecord(
                        str(stream), record.partition_key, record.explicit_hash_key, record.data, error
                    )
                )
                told = True
            except BaseException:  # also SystemExit: it must not cost other records their result
                self._broken += 1
                if is_power_of_two(self._broken):
                    _LOGGER.exception(
                        "the hook for failed records raised, %d times so far; records are lost unless their "
                        "futures are looked at",
                        self._broken,
                    )
        if record.sent_blind and not told:
            self._silent += 1
            if is_power_of_two(self._silent):
                # Less and less often: a stream that is gone fails every record.
                _LOGGER.error(
                    "%d records of send() were not stored so far, and no hook took them: %s",
                    self._silent,
                    error,
                )


def is_power_of_two(number: int) -> bool:
    """Return whether a count is 1, 2, 4, 8 and so on: when to log what happens again and again."""
    return number & (number - 1) == 0
