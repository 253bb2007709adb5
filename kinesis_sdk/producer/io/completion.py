"""Completion of records: failure hooks, metrics, final states, room in the buffer, callbacks.

`Completion.finish` takes a record with a final result through four steps:

1. Failure hooks and metrics see its payload.
2. Its future becomes final, and the payload is released.
3. Its room in the buffer is released, and callers that wait for room are woken.
4. Its callbacks run; afterwards `flush` and `close` no longer count it.

So when `flush` returns, every future is final and every hook and callback has run, and a callback finds room for the records that it puts.
Callbacks run on the pool's threads, and not on the thread of the I/O loop, because every stream needs that thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from kinesis_sdk.common.errors import ProducerError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.producer.failures.hooks import FailureHooks
from kinesis_sdk.producer.io.buffer_usage import callback_runs
from kinesis_sdk.producer.io.metrics import MetricsSampler, ProducerMetrics
from kinesis_sdk.producer.io.sender import TaskPool
from kinesis_sdk.producer.io.shared import SharedState
from kinesis_sdk.producer.records.record import (
    REENTERED,
    BufferedRecord,
    CallbackRun,
    interrupted_here,
    mark_failed,
    mark_stored,
    orphan,
)
from kinesis_sdk.producer.stream.pending import Settled
from kinesis_sdk.producer.stream.pipeline import StreamPipeline

_LOGGER = FieldLogger(logging.getLogger(__name__))

Relay: TypeAlias = Callable[[Sequence[BufferedRecord]], None]
"""Called without the lock with each group of records that became final, before `flush` counts them as done. Must not raise."""

Group: TypeAlias = tuple[StreamPipeline, list[Settled]]
"""Final results of one stream."""


class Completion:
    """Delivers final results to futures, hooks, metrics and callbacks. Thread-safe.

    ``relay`` delivers the results to event loops.
    """

    def __init__(
        self,
        shared: SharedState,
        hooks: FailureHooks | None = None,
        metrics: ProducerMetrics | None = None,
        sampler: MetricsSampler | None = None,
    ) -> None:
        self._shared = shared
        self._hooks = hooks
        self._metrics = metrics
        self._sampler = sampler
        self.relay: Relay | None = None
        # Groups that were taken from their pipelines and whose futures may not be final yet.
        self._completing: dict[int, list[Group]] = {}

    # ------------------------------------------------------------------ under the lock

    def take(self, pipelines: Iterable[StreamPipeline]) -> list[Group]:
        """Take the final results of pipelines for `finish`, and charge bytes that they hold in addition to records. Call under the lock."""
        groups = []
        for pipeline in pipelines:
            pending = pipeline.pending
            change = pending.take_newly_held()
            if change:
                self._shared.usage.bytes += change
                if change < 0:
                    self._shared.notify_room()
            if pending.settled:
                groups.append((pipeline, pending.take_settled()))
        if groups:
            self._completing[id(groups)] = groups
        return groups

    @property
    def unfinished(self) -> list[Settled]:
        """Final results that may not have reached their futures. Read under the lock."""
        items = [item for groups in self._completing.values() for _, settled in groups for item in settled]
        items.extend(
            item for pipeline in self._shared.pipelines.values() for item in pipeline.pending.settled
        )
        return items

    def is_at_rest(self) -> bool:
        """Return whether the producer has ended and no record, future or callback is left. Call under the lock."""
        usage = self._shared.usage
        return self._shared.rejection is not None and not (usage.count or usage.callbacks or self._completing)

    # ------------------------------------------------------------------ without the lock

    def finish(self, groups: list[Group], pool: TaskPool | None = None) -> None:
        """Take records through the four steps at the top of this module. Call without the lock.

        Callbacks run on ``pool``; None runs them on this thread.
        """
        if not groups:
            return
        shared = self._shared
        usage = shared.usage
        runs: list[CallbackRun] = []
        try:
            for pipeline, settled in groups:
                if self._metrics is not None:
                    self._metrics.settled(pipeline.stream, settled, pipeline.topology.predict)
                if self._hooks is not None:
                    self._hooks.notify(pipeline.stream, settled)
                for item in settled:
                    self._resolve(item, runs)
        except BaseException:
            # An interrupt, in `close`: the other records still get their results. A result is never replaced.
            for _, settled in groups:
                for item in settled:
                    self._resolve(item, runs)
            raise
        finally:
            with shared.lock:
                self._completing.pop(id(groups), None)  # forgotten in a child that a hook or callback forked
                for _, settled in groups:
                    for item in settled:
                        usage.release(item)
                usage.callbacks.update(dict.fromkeys(runs))
                if shared.stopped:
                    pool = None
                shared.notify_room()
                usage.notify_flushes()
            if runs and pool is not None:
                pool.submit(lambda: self._run_pooled(runs))
            elif runs:
                self._run_callbacks(runs)

    def reject_all(self, kind: type[ProducerError], text: str, cause: BaseException | None = None) -> int:
        """Reject new records, fail all records without a final result, and return their number.

        Responses that arrive later are dropped. ``kind``, ``text`` and ``cause`` make the error for these records and for callers.
        """
        shared = self._shared
        with shared.lock:
            if shared.rejection is not None:
                return 0
            shared.accepting = False
            shared.rejection = (kind, text, cause)
            settled = self.take(shared.pipelines.values())
            failure = kind(text)
            failure.__cause__ = cause
            interrupt: BaseException | None = None
            try:
                self._abandon(failure)
            except BaseException as error:  # noqa: BLE001 - raised below
                # An interrupt, in `close`: fail the other records first, or a later `close` would wait for them forever.
                interrupt = error
                self._abandon(failure)
            failed = self.take(shared.pipelines.values())
            shared.wake.notify_all()
            shared.notify_room()
        before, shared.delivering.here = shared.delivering.here, True
        try:
            try:
                self.finish(settled)
            finally:
                self.finish(failed)
            if self._sampler is not None:
                self._sampler.sample()
        finally:
            shared.delivering.here = before
        if interrupt is not None:
            raise interrupt
        return sum(len(item.records) for _, items in failed for item in items)

    def crash(self, error: BaseException) -> None:
        """Handle an internal error: log it, fail every pending record and reject new ones."""
        _LOGGER.critical("the producer failed because of an internal error", exc_info=error)
        self.reject_all(
            ProducerError, f"the producer's engine failed: {type(error).__name__}: {error}", error
        )

    def forget_after_fork(self, error: ProducerError) -> None:
        """Fail the parent's records in a forked child, where no thread completes them."""
        records = [record for pipeline in self._shared.pipelines.values() for record in pipeline.pending.live]
        records.extend(record for item in self.unfinished for record in item.records)
        for record in records:
            orphan(record, type(error)(str(error)))
        self._completing.clear()

    def _abandon(self, error: ProducerError) -> None:
        """Fail every record without a final result. Call under the lock."""
        now = self._shared.now()
        for pipeline in self._shared.pipelines.values():
            pipeline.responses.abandon(now, error)

    def _resolve(self, item: Settled, runs: list[CallbackRun]) -> None:
        """Make the futures of a final result final, and add their callbacks to ``runs``."""
        called: list[BufferedRecord] = []
        if item.entry is not None and item.stored is not None:
            called = mark_stored(item.entry, item.stored)
        elif item.error is not None:
            called = mark_failed(item.records, item.error)
        if called:
            runs.extend(callback_runs(called, item))
        if self.relay is not None:
            self.relay(item.records)

    def _run_pooled(self, runs: list[CallbackRun]) -> None:
        self._shared.delivering.here = True
        try:
            self._run_callbacks(runs)
        except BaseException as error:  # noqa: BLE001 - a bug here must fail every record, not hang them
            self.crash(error)

    def _run_callbacks(self, runs: list[CallbackRun]) -> None:
        """Run callbacks, and remove them from the counts."""
        try:
            for run in runs:
                run.run()
        except BaseException:
            for run in runs:  # an interrupt, in `close`: the remaining callbacks still run
                run.run()
            raise
        finally:
            with self._shared.lock:
                for run in runs:
                    self._shared.usage.callbacks.pop(run, None)
                self._shared.changed.notify_all()
                self._shared.usage.notify_flushes()


class ReentryGuard:
    """Rejects calls and waits that would never end.

    `flush`, `close`, a `put` without room and `PendingRecord.result` wait for the producer's threads. Three kinds of callers would wait
    for themselves and are rejected:

    - the producer's own threads, which deliver the results;
    - a thread in `close` that ends the remaining records;
    - a signal handler that interrupted the holder of the producer's lock, or of the state lock of `record`.

    A signal handler that interrupted other code may wait, even inside `flush`, `close` or `result`: no lock is held while they wait.
    """

    def __init__(self, shared: SharedState, completion: Completion) -> None:
        self._shared = shared
        self._completion = completion

    def check_not_interrupted(self) -> None:
        """Raise `ProducerError` in a signal handler that interrupted a call of the producer on its own thread."""
        if self._shared.held_here():
            raise ProducerError(REENTERED)

    def check_may_wait(self, what: str) -> None:
        """Raise `ProducerError` if this thread would wait for itself. The error's message names the call (``what``)."""
        if self._shared.held_here() or interrupted_here():
            raise ProducerError(REENTERED)
        if self._shared.delivering.here:
            raise ProducerError(
                f"{what} cannot be called from a record callback or failure hook, or from a signal handler that interrupted "
                "close(): it would block the thread that delivers results; call it from another thread"
            )

    def check_may_wait_for(self, record: BufferedRecord) -> None:
        """`check_may_wait` for the result of one record, if it belongs to this producer."""
        if (self._shared.held_here() or self._shared.delivering.here) and self._owes(record):
            self.check_may_wait("result() of a record without one")

    def may_wait_for_room(self) -> bool:
        """Return whether a `put` without room may wait: not on the threads that have to make the room.

        Raises `ProducerError` in a signal handler that interrupted a change of a record's state.
        """
        if self._shared.delivering.here:
            return False
        if interrupted_here():
            raise ProducerError(REENTERED)
        return True

    def _owes(self, record: BufferedRecord) -> bool:
        """Return whether this producer must still give the record its final result."""
        with self._shared.lock:
            entry = record._delivery.entry
            return any(
                entry in pipeline.pending.entries for pipeline in self._shared.pipelines.values()
            ) or any(
                item.entry is entry if item.entry is not None else record in item.records
                for item in self._completion.unfinished
            )
