"""`Recording`: views in, the past out."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import uuid
from bisect import bisect_right
from pathlib import Path

from kinesis_sdk.admin.fleet.model import TREND_LENGTH, TREND_STEP, FleetView, LeaseState
from kinesis_sdk.admin.recording.model import GAP, Course, OwnerSpan, Sample, ShardHistory, Step
from kinesis_sdk.admin.recording.ring import Change, Ring
from kinesis_sdk.admin.recording.rows import (
    CHECKPOINT,
    ERROR,
    FAILURE,
    FLEET,
    KEEP_ALIVE,
    LAG,
    LEASE,
    MOVE,
    OWNER,
    PROBLEM,
    RATE,
    SCAN,
    SHARD,
    is_news,
    known,
    moves_of,
    position_of,
    rows_of,
    view_of,
)

MAX_BYTES = 256 * 1024 * 1024
"""Default maximum size of a file."""
MEMORY_BYTES = 64 * 1024 * 1024
"""Default maximum size of a recording in memory."""
MAX_AGE = 7 * 86_400.0
"""Seconds for which changes are kept by default."""
MAX_POINTS = 720
"""Maximum number of samples of a history, and of steps of a course."""
_FORGET = 60.0
"""Seconds between two deletions of old rows."""
_STATES = (SHARD, LEASE, OWNER, PROBLEM, LAG, CHECKPOINT, RATE)
"""Kinds of rows whose keys end with the first view that lacks them."""

_LOGGER = logging.getLogger(__name__)


class Recording:
    """Recording of the views of applications, bounded in bytes and time. Thread-safe.

    Several processes may share one file: for each application, one process writes, and the other processes read. A view that
    cannot be written is left out, with one warning.

    Args:
        path: The file, created if it does not exist; None for the memory of this process.
        max_bytes: Maximum size in bytes; the oldest changes are deleted to make room. None for `MAX_BYTES`, or `MEMORY_BYTES` in memory.
        max_age: Seconds for which changes are kept.

    Raises:
        ConfigError: If the file cannot be opened or is not a recording.
    """

    def __init__(
        self, path: str | Path | None = None, *, max_bytes: int | None = None, max_age: float = MAX_AGE
    ) -> None:
        default = MEMORY_BYTES if path is None else MAX_BYTES
        self._ring = Ring(path, max_bytes=default if max_bytes is None else max_bytes)
        self._max_age = max_age
        self._lock = threading.Lock()
        self._name = uuid.uuid4().hex[:12]
        self._writers: dict[str, _Writer] = {}
        self._forgotten_at = float("-inf")
        self._has_failed = False
        self._is_closed = False

    def close(self) -> None:
        """Close the file. Later views are not recorded."""
        with self._lock:
            self._is_closed = True
            self._ring.close()

    def update(self, view: FleetView) -> None:
        """Record what changed since the last view of its application."""
        with self._lock:
            if self._is_closed:
                return
            try:
                writer = self._writers.setdefault(
                    view.application, _Writer(self._ring, view.application, self._name)
                )
                writer.write(view)
                self._ring.make_room()
                if not 0 <= view.at - self._forgotten_at < _FORGET:
                    self._forgotten_at = view.at
                    self._ring.forget(view.at - self._max_age)
            except sqlite3.Error as error:
                # Read the written rows back, so that only rows in the file count as recorded.
                self._writers.pop(view.application, None)
                if not self._has_failed:
                    _LOGGER.warning("views cannot be recorded: %s", error)
                self._has_failed = True
            else:
                self._has_failed = False

    def view_at(self, application: str, at: float) -> FleetView | None:
        """Return the application at a given time, rebuilt from the changes up to then.

        Args:
            application: Its name.
            at: Wall time in epoch seconds.

        Returns:
            The view; None if the application was not observed within `GAP` seconds before.
        """
        newest = {kind: self._ring.newest(application, kind, at) for kind in (SCAN, FAILURE, *_STATES)}
        if all(at - row.at > GAP for kind in (SCAN, FAILURE) for row in newest[kind]):
            return None
        begin = at - TREND_LENGTH * TREND_STEP
        moves = self._ring.between(application, MOVE, begin, at)
        lags = [*self._ring.newest(application, LAG, begin), *self._ring.between(application, LAG, begin, at)]
        return view_of(application, at, newest, moves, lags)

    def history(
        self, application: str, lease_key: str, start: float, end: float, *, points: int = MAX_POINTS
    ) -> ShardHistory:
        """Return the owners, the lag and the checkpoints of a shard over a period.

        Args:
            application: Name of its application.
            lease_key: Key of its lease.
            start: Beginning, in epoch seconds.
            end: End.
            points: Maximum number of samples, at least 10 s apart.
        """
        observed = self._observed_spans(application, start, end)
        leases, lags, positions = (
            self._ring.between(application, kind, start, end, key=lease_key)
            for kind in (LEASE, LAG, CHECKPOINT)
        )
        if not leases:
            return ShardHistory()
        step = max(TREND_STEP, (end - start) / points)
        samples = []
        for begin, until in observed:
            at = max(begin, leases[0].at)
            while at <= until:
                lag = known(_valid(lags, at))
                position = position_of(_valid(positions, at))
                samples.append(
                    Sample(
                        at=at,
                        lag_millis=None if lag is None else int(lag),
                        checkpoint=None if position is None else position.sequence_number,
                    )
                )
                at += step
        return ShardHistory(owners=tuple(_spans(leases, observed)), samples=tuple(samples))

    def course(self, application: str, start: float, end: float, *, points: int = MAX_POINTS) -> Course:
        """Return the course of an application over a period: worst lag, moves, and the errors that began.

        Args:
            application: Its name.
            start: Beginning, in epoch seconds.
            end: End.
            points: Maximum number of steps of at least 10 s.
        """
        step = max(TREND_STEP, (end - start) / points)
        span = self._ring.span(application, SCAN, FLEET)
        moves = dict(self._ring.counts(application, MOVE, start, end, step))
        problems: dict[int, int] = {}
        there = {row.key for row in self._ring.newest(application, PROBLEM, start)}
        for row in self._ring.between(application, PROBLEM, start, end):
            if row.value is None:
                there.discard(row.key)
            elif row.key not in there:
                there.add(row.key)
                place = int((row.at - start) / step)
                problems[place] = problems.get(place, 0) + int(row.number == ERROR)
        worst: dict[int, float | None] = {}
        for place, lag in self._ring.largest(application, SCAN, FLEET, start, end, step):
            # A view that equals the previous view has no row.
            before = max(worst, default=place)
            if (place - before) * step <= GAP + step:
                worst.update(dict.fromkeys(range(before + 1, place), worst.get(before)))
            worst[place] = lag
        steps = [
            Step(
                at=start + place * step,
                worst_lag_millis=None if largest is None or largest < 0 else int(largest),
                moves=moves.get(place, 0),
                problems=problems.get(place, 0),
            )
            for place, largest in sorted(worst.items())
        ]
        first, last = span or (None, None)
        return Course(first=first, last=last, start=start, end=end, step=step, steps=tuple(steps))

    def _observed_spans(self, application: str, start: float, end: float) -> list[tuple[float, float]]:
        """Return the times in which the application was observed."""
        found: list[tuple[float, float]] = []
        for row in self._ring.between(application, SCAN, start, end, key=FLEET):
            at = max(row.at, start)
            if found and row.at - found[-1][1] <= GAP:
                found[-1] = (found[-1][0], at)
            elif row.at >= start - GAP:
                found.append((at, at))
        if found and end - found[-1][1] <= KEEP_ALIVE:
            found[-1] = (found[-1][0], end)  # a view that equals the previous view has no row
        return found


class _Writer:
    """Writes the changes of one application into the file. ``recorder`` names this process."""

    def __init__(self, ring: Ring, application: str, recorder: str) -> None:
        self._ring = ring
        self._application = application
        self._recorder = recorder
        self._newest: dict[tuple[int, str], Change] | None = None
        self._moved_at = float("-inf")

    def write(self, view: FleetView) -> None:
        if self._yields(view.at):
            self._newest = None
            return
        if self._newest is None:
            self._newest = {
                (row.kind, row.key): row
                for kind in (SCAN, FAILURE, *_STATES)
                for row in self._ring.newest(self._application, kind, view.at)
            }
            span = self._ring.between(self._application, MOVE, view.at - TREND_LENGTH * TREND_STEP, view.at)
            self._moved_at = max((row.at for row in span), default=float("-inf"))
        rows = rows_of(view, recorder=self._recorder)
        if not view.error:
            there = {(row.kind, row.key) for row in rows}
            rows += [
                Change(kind, key, view.at)
                for kind, key in self._newest
                if kind in _STATES and (kind, key) not in there
            ]
        news = [row for row in rows if is_news(self._newest.get((row.kind, row.key)), row)]
        moves = moves_of(view, self._moved_at)
        self._ring.put(self._application, [*news, *moves])
        for row in news:
            if row.number is None and row.value is None:
                self._newest.pop((row.kind, row.key), None)
            else:
                self._newest[row.kind, row.key] = row
        self._moved_at = max([self._moved_at, *(row.at for row in moves)])

    def _yields(self, at: float) -> bool:
        """Return whether another process records this application: of two processes, only the one whose name sorts first does."""
        for row in self._ring.newest(self._application, SCAN, at):
            by = _recorder_of(row)
            return 0 <= at - row.at <= 2 * KEEP_ALIVE and by != self._recorder and by < self._recorder
        return False


def _recorder_of(row: Change) -> str:
    return str(json.loads(row.value or "{}").get("by", ""))


def _valid(rows: list[Change], at: float) -> Change | None:
    """Return the row that was valid at a given time."""
    place = bisect_right(rows, at, key=lambda row: row.at)
    return rows[place - 1] if place else None


def _spans(leases: list[Change], observed: list[tuple[float, float]]) -> list[OwnerSpan]:
    """Return the owners of a lease within the times in which it was observed."""
    found: list[OwnerSpan] = []
    for begin, until in observed:
        for place, row in enumerate(leases):
            ends = leases[place + 1].at if place + 1 < len(leases) else until
            start, end = max(begin, row.at), min(until, ends)
            if row.value is None or start > end or row.at > until:
                continue
            value = json.loads(row.value)
            owner, state = value.get("owner"), LeaseState(value["state"])
            last = found[-1] if found else None
            if last is not None and (last.owner, last.state, last.end) == (owner, state, start):
                found[-1] = OwnerSpan(owner=owner, state=state, start=last.start, end=end)
            else:
                found.append(OwnerSpan(owner=owner, state=state, start=start, end=end))
    return found
