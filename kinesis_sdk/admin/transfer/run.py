"""The loop of a transfer: it puts records with a `Producer`, and accounts for acknowledged records.

A record is acknowledged when its future has a result. With a state file, the same command continues a killed run, and guarantees this:

- No record is lost: a record that failed or is not acknowledged is put again.
- An acknowledged record is put again only if the run was killed before the account was written; the account is written every 0.2 s and at
the end. So at most the acknowledgements of the last 0.2 s and the requests in flight are repeated.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kinesis_sdk.admin.transfer.acknowledged import AckTracker, Ticket
from kinesis_sdk.admin.transfer.state import StateFile
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import AdminError, InvalidRecordError
from kinesis_sdk.common.validation import check_rate
from kinesis_sdk.producer import Producer

SAVE_INTERVAL = 0.2
"""Seconds between two writes of the state file, by a thread of its own, and between two progress reports."""
_SHOWN_PROBLEMS = 10
_HOPELESS = 1000
"""Consecutive failed records after which the run stops reading."""
_MAX_BURST = 0.1
"""After a pause, the records of at most this many seconds of a rate limit are put at once."""


class TransferRecord(NamedTuple):
    """One record on its way.

    Attributes:
        partition_key: None for a record without a partition key: only streams that place records themselves accept it.
        explicit_hash_key: Decimal text, or None.
        problem: Reason why it cannot be put; None if it can.
    """

    source: str
    position: Any
    data: bytes
    partition_key: str | None
    explicit_hash_key: str | None = None
    problem: str | None = None
    headers: Mapping[str, bytes] | None = field(default=None, repr=False)


@dataclass
class TransferProgress:
    """State of a transfer. The fields change while it runs.

    Attributes:
        read: Records that were read.
        skipped: Records read that an earlier run had put.
        acknowledged: Records that Kinesis has stored.
        acknowledged_bytes: Bytes of their payloads.
        failed: Records that Kinesis did not store.
        rejected: Records that cannot be put: invalid input.
        seconds: Since the start.
        fraction: Part of the source that was read, from 0 to 1; None if unknown.
    """

    read: int = 0
    skipped: int = 0
    acknowledged: int = 0
    acknowledged_bytes: int = 0
    failed: int = 0
    rejected: int = 0
    seconds: float = 0.0
    fraction: float | None = None

    @property
    def rate(self) -> float:
        """Acknowledged records per second since the start."""
        return self.acknowledged / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimate of the seconds to the end; None if unknown."""
        if not self.fraction or self.seconds <= 0:
            return None
        return self.seconds * (1 - self.fraction) / self.fraction


@dataclass(frozen=True, kw_only=True)
class TransferResult:
    """The end of a transfer.

    Attributes:
        read: Records that were read.
        skipped: Records read that an earlier run had put.
        acknowledged: Records that Kinesis has stored.
        acknowledged_bytes: Bytes of their payloads.
        failed: Records that Kinesis did not store.
        rejected: Records that cannot be put: invalid input.
        unknown: Records without a result, because the run was interrupted twice.
        seconds: Duration.
        interrupted: Whether it was stopped before the end of its source.
        reached: Last position that was read, by source.
        problems: The first messages about records that failed or were rejected, at most ten. Failed records, without their payloads.
        spooled: Failed records that the hook accepted, for example a `FileSpool`; None without a hook.
        not_spooled: Failed records for which the hook raised.
        spool_problem: The first error of the hook; None if there was none.
    """

    read: int
    skipped: int
    acknowledged: int
    acknowledged_bytes: int
    failed: int
    rejected: int
    unknown: int
    seconds: float
    interrupted: bool
    reached: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    spooled: int | None = None
    not_spooled: int = 0
    spool_problem: str | None = None

    @property
    def is_good(self) -> bool:
        """Whether every record of the source is stored."""
        return not (self.failed or self.rejected or self.unknown or self.interrupted)


class Transfer:
    """One run. Used by one thread. Raises ConfigError if ``rate`` is out of range.

    The caller closes the producer. ``rate`` is the maximum of records per second, None for no limit. ``task`` describes the run in the state
    file, and ``fixed`` is further content of this file. ``on_progress`` is called every 0.2 s at most.
    """

    def __init__(
        self,
        producer: Producer,
        target: str,
        *,
        rate: float | None = None,
        state: StateFile | None = None,
        task: Mapping[str, str] | None = None,
        fixed: Mapping[str, Any] | None = None,
        on_progress: Callable[[TransferProgress], None] = lambda _progress: None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if rate is not None:
            check_rate("rate", rate)
        self._producer = producer
        self._target = target
        self._rate = rate
        self._state = state
        self._task = dict(task or {})
        self._fixed = dict(fixed or {})
        self._on_progress = on_progress
        self._clock: Clock = clock or SystemClock()
        self._sleep = sleep
        self._lock = threading.Lock()
        self._trackers: dict[str, AckTracker[Any]] = {}
        self._details: dict[str, dict[str, Any]] = {}
        self._reached: dict[str, Any] = {}
        self._problems: list[str] = []
        self._failed_in_a_row = 0
        self._open = 0
        self._saving = threading.Lock()
        self._saved: dict[str, Any] | None = None
        self._save_error: AdminError | None = None
        self._next_put = float("-inf")
        self.progress: TransferProgress = TransferProgress()

    def add_source(
        self, name: str, saved: Mapping[str, Any] | None = None, **details: Any
    ) -> AckTracker[Any]:
        """Prepare a source that an earlier run may have begun; new sources begin without an account.

        ``saved`` is the source's entry in the state file of the earlier run; ``details`` are further facts for the new entry.
        """
        saved = saved or {}
        tracker = self._trackers[name] = AckTracker(
            _position(saved.get("through")),
            [(_position(first), _position(last)) for first, last in saved.get("beyond", ())],
        )
        self._details[name] = details
        return tracker

    def run(
        self, records: Iterable[TransferRecord], fraction: Callable[[], float | None] = lambda: None
    ) -> TransferResult:
        """Put the records, and wait for their results. Ctrl-C stops reading, and a second Ctrl-C stops waiting.

        ``records`` has the records of each source in order; ``fraction`` returns the part of the source that was read.

        Raises:
            KinesisSdkError: If the source fails, or the producer. Acknowledged records are in the state file.
        """
        begin = self._clock.monotonic()
        interrupted = False
        unknown = 0
        ended = threading.Event()
        saver = threading.Thread(
            target=self._save_until, args=(ended,), name="kinesis-sdk-state", daemon=True
        )
        if self._state is not None:
            # A source may have no records for hours, during which acknowledgements still arrive.
            saver.start()
        try:
            try:
                interrupted = not self._put_all(records, begin, fraction)
            except KeyboardInterrupt:
                interrupted = True
            try:
                unknown = self._drain(begin, fraction)
            except KeyboardInterrupt:
                interrupted = True
                unknown = self._open
        except BaseException:
            # The source failed. Records in flight may still be stored, and are then not put again.
            self._producer.flush(timeout=10.0)
            raise
        finally:
            ended.set()
            if self._state is not None:
                saver.join()
            self._report(begin, fraction)
            self._save()
        progress = self.progress
        return TransferResult(
            read=progress.read,
            skipped=progress.skipped,
            acknowledged=progress.acknowledged,
            acknowledged_bytes=progress.acknowledged_bytes,
            failed=progress.failed,
            rejected=progress.rejected,
            unknown=unknown,
            seconds=self._clock.monotonic() - begin,
            interrupted=interrupted,
            reached={name: _position_text(position) for name, position in self._reached.items()},
            problems=tuple(self._problems),
        )

    def _put_all(
        self, records: Iterable[TransferRecord], begin: float, fraction: Callable[[], float | None]
    ) -> bool:
        """Put the records; return False if too many failed."""
        due = begin + SAVE_INTERVAL
        for record in records:
            self.progress.read += 1
            self._reached[record.source] = record.position
            tracker = self._trackers.get(record.source) or self.add_source(record.source)
            ticket = tracker.begin(record.position)
            if tracker.was_done(record.position):
                tracker.finish(ticket)
                self.progress.skipped += 1
            elif record.problem is not None:
                self._reject(record, record.problem)
            else:
                self._put(record, tracker, ticket)
                self._keep_rate()
            now = self._clock.monotonic()
            if now >= due:
                due = now + SAVE_INTERVAL
                self._report(begin, fraction)
                if self._save_error is not None:
                    raise self._save_error
                if self._failed_in_a_row >= _HOPELESS:
                    self._problem(
                        f"stopped: the last {self._failed_in_a_row:,} records failed, one after the other"
                    )
                    return False
        return True

    def _put(self, record: TransferRecord, tracker: AckTracker[Any], ticket: Ticket[Any]) -> None:
        try:
            future = self._producer.put(
                self._target,
                record.partition_key,
                record.data,
                record.explicit_hash_key,
                headers=record.headers,
            )
        except InvalidRecordError as error:
            self._reject(record, str(error))
            return
        with self._lock:
            self._open += 1
        future.add_done_callback(
            functools.partial(self._finished, tracker, ticket, record.source, len(record.data))
        )

    def _finished(
        self, tracker: AckTracker[Any], ticket: Ticket[Any], source: str, size: int, future: Future[Any]
    ) -> None:
        """Account for a result; runs on a thread of the producer."""
        error = future.exception()
        if error is None:
            tracker.finish(ticket)
        with self._lock:
            self._open -= 1
            if error is None:
                self.progress.acknowledged += 1
                self.progress.acknowledged_bytes += size
                self._failed_in_a_row = 0
            else:
                self.progress.failed += 1
                self._failed_in_a_row += 1
        if error is not None:
            self._problem(f"{source}, record {_position_text(ticket.position)}: {error}")

    def _reject(self, record: TransferRecord, why: str) -> None:
        self.progress.rejected += 1
        self._problem(f"{record.source}, record {_position_text(record.position)}: {why}")

    def _problem(self, message: str) -> None:
        with self._lock:
            if len(self._problems) < _SHOWN_PROBLEMS:
                self._problems.append(message)

    def _keep_rate(self) -> None:
        if self._rate is None:
            return
        now = self._clock.monotonic()
        # The rate does not make up for time in which the source had no records.
        self._next_put = max(self._next_put, now - _MAX_BURST) + 1 / self._rate
        if self._next_put > now:
            self._sleep(self._next_put - now)

    def _drain(self, begin: float, fraction: Callable[[], float | None]) -> int:
        while True:
            left = self._producer.flush(timeout=SAVE_INTERVAL)
            self._report(begin, fraction)
            if not left:
                return 0

    def _report(self, begin: float, fraction: Callable[[], float | None]) -> None:
        self.progress.seconds = self._clock.monotonic() - begin
        self.progress.fraction = fraction()
        self._on_progress(self.progress)

    def _save_until(self, ended: threading.Event) -> None:
        """Keep the state file up to date; runs on its own thread."""
        while not ended.wait(SAVE_INTERVAL):
            try:
                self._save()
            except AdminError as error:
                self._save_error = error  # raised by the thread of the transfer
                return

    def _save(self) -> None:
        if self._state is None:
            return
        with self._saving:
            sources: dict[str, Any] = {}
            for name, tracker in list(self._trackers.items()):
                through, beyond = tracker.state()
                sources[name] = {"through": through, "beyond": beyond, **self._details.get(name, {})}
            if sources == self._saved:
                return
            try:
                self._state.save(self._task, {**self._fixed, "sources": sources})
            except OSError as error:
                raise AdminError(f"the state file {self._state.path} cannot be written: {error}") from error
            self._saved = sources


def _position(value: Any) -> Any:
    """Return a position as it was before JSON turned its tuples into lists."""
    return tuple(value) if isinstance(value, list) else value


def _position_text(position: Any) -> str:
    return "/".join(map(str, position)) if isinstance(position, tuple) else str(position)
