"""Rejects calls and waits that could not end.

`flush`, `close`, a `put` without room and `PendingRecord.result` wait for the producer's threads. Three kinds of callers would wait
for themselves and are rejected:

- the producer's own threads, which deliver the results;
- a thread in `close` that ends the remaining records;
- a signal handler that interrupted the holder of the producer's lock, or of the state lock of `record`.

A signal handler that interrupted anything else may wait, even inside `flush`, `close` or `result`: no lock is held while they wait.
"""

from __future__ import annotations

from kinesis_sdk.common.errors import ProducerError
from kinesis_sdk.producer.completion import Completion
from kinesis_sdk.producer.record import REENTERED, PendingRecord, interrupted_here
from kinesis_sdk.producer.shared import SharedState


class ReentryGuard:
    """Rejects what the current thread cannot wait for.

    Args:
        shared: State shared by callers and the I/O loop.
        completion: Where records end.
    """

    def __init__(self, shared: SharedState, completion: Completion) -> None:
        self._shared = shared
        self._completion = completion

    def check_not_interrupted(self) -> None:
        """Raise `ProducerError` in a signal handler that interrupted a call of the producer on its own thread."""
        if self._shared.held_here():
            raise ProducerError(REENTERED)

    def check_may_wait(self, what: str) -> None:
        """Raise `ProducerError` if what this thread wants to wait for cannot come before the thread continues.

        Args:
            what: The call, for the error's text.
        """
        if self._shared.held_here() or interrupted_here():
            raise ProducerError(REENTERED)
        if self._shared.delivering.here:
            raise ProducerError(
                f"{what} cannot be called from a record callback or failure hook, or from a signal handler that interrupted "
                "close(): it would block the thread that delivers results; call it from another thread"
            )

    def check_may_wait_for(self, record: PendingRecord) -> None:
        """`check_may_wait` for the result of one record, if it belongs to this producer."""
        if (self._shared.held_here() or self._shared.delivering.here) and self._owes(record):
            self.check_may_wait("result() of a record without one")

    def may_wait_for_room(self) -> bool:
        """Return whether a `put` without room may wait: not on the threads that have to make the room.

        Raises:
            ProducerError: In a signal handler that interrupted a change of a record's state.
        """
        if self._shared.delivering.here:
            return False
        if interrupted_here():
            raise ProducerError(REENTERED)
        return True

    def _owes(self, record: PendingRecord) -> bool:
        """Return whether the record belongs to this producer and has no final result."""
        with self._shared.lock:
            entry = record._delivery.entry
            return any(entry in pipeline.entries for pipeline in self._shared.pipelines.values()) or any(
                item.entry is entry if item.entry is not None else record in item.records
                for item in self._completion.unfinished
            )
