"""Identities of user records, by which readers recognize the repetitions of an idempotent producer.

```
FRESH ─► SENT ─┬─ stored where it belongs ──────────────────► acknowledged
   ▲           ├─ certainly not stored there ─► FRESH, or HELD again if it ever was
   └───────────┤
               └─ may be stored ─► HELD until the hold-off has passed ─► SENT again, marked, with the same identity
```

| state | `PendingRecord.identity` | `Attempted.stamp` of its Kinesis record |
|---|---|---|
| FRESH | None; without a date for a record that the application named | None, or of an attempt that stored nothing |
| SENT | as before | of this attempt |
| HELD | with a date: kept until the final result, and each further attempt is marked | as for FRESH |

A record costs nothing until an attempt of it has an unknown outcome: the numbers of an aggregate's fresh records follow from its stamp.
`Identities.stamp` is called when a request is cut, and `Identities.keep` when the outcome of an attempt is unknown
(`outcomes.stored_nothing`).

Rules:

- A fresh record gets an incarnation, a number and a date each time it is sent: a failed attempt that certainly stored nothing leaves no trace.
- The incarnation is drawn for each request and never continued. A process image may run twice (a restored virtual machine, CRIU, SnapStart), and
  no clock tells a process that it was copied. If two copies continued from one state, they would give one identity to two records, and
  readers would drop one of them. A record that is HELD in the image is repeated by both copies with one identity: it is one put.
- The date is never later than the time at Kinesis of any attempt with this identity. At least `HOLD_OFF` seconds of the monotonic clock
  pass between the first such attempt and the second. So a copy that arrives before the date plus the hold-off is the first one,
  and readers look nothing up for it.
- The caller of a named record may know a moment before which no attempt to put it began (`Identity.first`). Until an attempt may be
  stored, the record is dated by that moment and says so (`FIRST`). Its hold-off ends no later than `HOLD_OFF` seconds after this attempt,
  and no later than `FIRST_HOLD_OFF` seconds after another process that may put it began.
- A repetition is marked for good, with the identity of the first attempt that may be stored.
- After `REPEAT_WINDOW` seconds, readers do not look back far enough: the record gets a new identity and may be stored twice.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import KinesisSdkError, PermanentAwsError
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.once.table import (
    FIRST,
    FIRST_HOLD_OFF,
    HOLD_OFF,
    INCARNATION_SIZE,
    NAMED,
    REPEAT,
    Run,
    encode_table,
)
from kinesis_sdk.common.service_clock import ServiceClock, date_text, response_date
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.records.identity import Identity, Stamp
from kinesis_sdk.producer.stream.topology import Topology

if TYPE_CHECKING:
    from kinesis_sdk.producer.records.entry import Entry

_LOGGER = FieldLogger(logging.getLogger(__name__))

REPEAT_WINDOW = 600.0
"""A record gets a new identity this many seconds after the first attempt that may be stored. Readers look back 900 s."""

WRAPPING = 128
"""Bytes by which a user record may grow if it is sent as an aggregate of one: magic and digest, the key table and a hash key, its tag and
the one-byte partition key, without its own key."""

_UNDATED = 2.0
"""Seconds by which the wall clock may be ahead. They are subtracted where responses have no ``Date``."""

_FRESH = 600.0
"""Seconds for which the monotonic clock alone advances the ``Date`` of a response."""

_FIRST_NUMBERS = 1 << 40

_CLOCKS = Struct("<3qI")
"""Three clocks in nanoseconds, and a process id."""


_LAPSED = Identity(b"", 0, lapsed=True)
"""For a record without an identity: a former one lapsed, so it may be stored."""


def idempotence_error(topology: Topology, stream: StreamId) -> KinesisSdkError | None:
    """Return why repetitions of a stream's records cannot be recognized; None if they can, or if that is not known yet."""
    if topology.shard_map is None and topology.described and not topology.service_places:
        return PermanentAwsError(
            f"idempotent=True needs the permission kinesis:ListShards for stream {stream}"
        )
    return None


def fresh_entropy(size: int) -> bytes:
    """Return up to 32 bytes that neither another process nor another copy of this process image draws.

    A restored virtual machine may continue with the kernel's former random state until the kernel is told (VM generation id). But its clocks
    never match the clocks of the other copy to a nanosecond.
    """
    clocks = _CLOCKS.pack(time.time_ns(), time.monotonic_ns(), time.perf_counter_ns(), os.getpid())
    return hashlib.sha256(os.urandom(32) + clocks).digest()[:size]


class Identities:
    """The identities that a producer gives to the records of one stream. Not thread-safe.

    Without ``enabled`` (``ProducerConfig.idempotent``), nothing here has an effect. ``entropy`` is `fresh_entropy` except in tests. Two
    producers that draw the same bytes in the same millisecond lose records, so it is not the generator that a user may seed. ``begun_anew``
    counts user records that got a new identity although an earlier attempt may be stored.
    """

    def __init__(
        self,
        stream: StreamId,
        *,
        enabled: bool,
        wall_clock: Callable[[], float],
        entropy: Callable[[int], bytes],
    ) -> None:
        self._stream = stream
        self.enabled: bool = enabled
        self._wall_clock = wall_clock
        self._entropy = entropy
        self._service_clock = ServiceClock()
        self._observed = float("-inf")
        self._date_text: str | None = None
        self._undated_logged = False
        self._untagged_logged = False
        self.begun_anew: int = 0
        self._next = int.from_bytes(entropy(5), "big") % _FIRST_NUMBERS

    # ------------------------------------------------------------------ whether

    def tags(self, topology: Topology) -> bool:
        """Return whether records are sent with identities. A stream that places records itself has no ranges to judge them by."""
        if not self.enabled:
            return False
        if not topology.service_places:
            return True
        if topology.described and not self._untagged_logged:
            self._untagged_logged = True
            _LOGGER.warning(
                "stream %s places records itself (record distribution AUTO), so idempotent=True has no effect for it, and repetitions are not recognized",
                self._stream,
                extra=log_fields(stream=self._stream),
            )
        return False

    def waits_for_map(self, topology: Topology) -> bool:
        """Return whether records wait for a load. Without a map, their placement cannot be checked, and the time at Kinesis is unknown."""
        return (
            self.enabled
            and topology.shard_map is None
            and not (topology.service_places and topology.described)
        )

    # ------------------------------------------------------------------ time at Kinesis

    def observe(self, metadata: Mapping[str, Any] | None, now: float) -> None:
        """Take the ``Date`` of a response (its ``ResponseMetadata``) that had arrived at ``now``."""
        if not self.enabled:
            return
        text = date_text(metadata)
        if text != self._date_text:  # the same date again adds nothing
            self._date_text = text
            self.observe_date(response_date(metadata), now)

    def observe_date(self, date: float | None, now: float) -> None:
        """Take a time that Kinesis had reached (epoch seconds; None if unknown) when the monotonic clock was ``now``."""
        if date is not None:
            self._service_clock.observe(date, now)
            self._observed = now

    def time_at_kinesis(self, now: float) -> int | None:
        """Return epoch milliseconds that Kinesis has reached; None before a response has told it. Thread-safe."""
        return None if self._service_clock.time_at(now) is None else self._date(now, self._wall_clock())

    def _date(self, now: float, wall: float) -> int:
        """Return epoch milliseconds that Kinesis has reached."""
        seconds = self._service_clock.time_at(now)
        if seconds is not None and now - self._observed > _FRESH:
            # Meanwhile, the monotonic clock may have drifted ahead, or may not have counted the time that the machine slept.
            seconds = min(seconds, wall - _UNDATED)
        elif seconds is None:
            seconds = wall - _UNDATED
            if not self._undated_logged:
                self._undated_logged = True
                _LOGGER.warning(
                    "stream %s: the responses have no Date header, so records are dated by this machine's clock less 2 s",
                    self._stream,
                    extra=log_fields(stream=self._stream),
                )
        return max(0, int(seconds * 1000))

    # ------------------------------------------------------------------ an attempt

    def stamp(self, entries: Sequence[Entry], now: float) -> None:
        """Give identities to the fresh records of a request that is sent now, and encode the tables of runs."""
        if not self.enabled or all(entry.attempt is None for entry in entries):
            return
        incarnation, wall = self._entropy(INCARNATION_SIZE), self._wall_clock()
        date = self._date(now, wall)
        for entry in entries:
            self._stamp(entry, Stamp(incarnation, date, self._next, now, wall))

    def _stamp(self, entry: Entry, stamp: Stamp) -> None:
        aggregate = entry.aggregate
        runs_of, attempt = aggregate.runs, entry.attempt
        if runs_of is None or attempt is None:
            return
        count = aggregate.count
        attempt.stamp = stamp
        self._next += count
        starts = runs_of.starts
        if len(starts) == 1 and entry.records[0].identity is None:
            runs = [Run(count, HOLD_OFF, 0, stamp.incarnation, stamp.date, stamp.number)]
        else:
            ends = [*starts[1:], count]
            runs = [self._run(entry, stamp, *ends) for ends in zip(starts, ends, strict=True)]
        runs_of.tag = encode_table(self._stream.name, entry.shard_id, runs)

    def _run(self, entry: Entry, stamp: Stamp, start: int, end: int) -> Run:
        records = entry.records[start:end]
        identity = records[0].identity
        if identity is not None and identity.date is not None:
            # After a suspension of the machine, only the wall clock shows the age.
            if max(stamp.made - identity.made, stamp.wall - identity.wall) <= REPEAT_WINDOW:
                flags = REPEAT | NAMED if identity.window else REPEAT
                return Run(
                    len(records), HOLD_OFF, flags, identity.incarnation, identity.date, identity.number
                )
            self.begun_anew += len(records)
            identity = (
                identity._replace(date=None, made=0.0, wall=0.0, lapsed=True) if identity.window else _LAPSED
            )
            for record in records:
                record.identity = identity
        if identity is None or not identity.incarnation:
            return Run(len(records), HOLD_OFF, 0, stamp.incarnation, stamp.date, stamp.number + start)
        date = _from(stamp, identity)
        if identity.first is None:
            flags = REPEAT | NAMED if identity.again else NAMED
            return Run(1, HOLD_OFF, flags, identity.incarnation, date, identity.number)
        holdoff = min(HOLD_OFF + (stamp.date - date) // 1000, FIRST_HOLD_OFF)
        return Run(1, holdoff, NAMED | FIRST, identity.incarnation, date, identity.number)

    def keep(self, entry: Entry) -> None:
        """Keep the identities of an attempt that may be stored: from now on, its records are held and marked.

        Does nothing for an entry that was sent without identities.
        """
        attempt = entry.attempt
        stamp = None if attempt is None else attempt.stamp
        if attempt is None or stamp is None:
            return
        attempt.stamp = None
        for index, record in enumerate(entry.records):
            identity = record.identity
            if identity is None or not identity.incarnation:
                record.identity = Identity(
                    stamp.incarnation, stamp.number + index, stamp.date, 0.0, stamp.made, stamp.wall
                )
            elif identity.date is None:
                date = _from(stamp, identity)
                if identity.first is not None:
                    # The date and the window then tell when it was first sent, as for other named records; see `resumed`.
                    identity = identity._replace(window=max(1.0, (stamp.date - date) / 1000), first=None)
                record.identity = identity._replace(date=date, made=stamp.made, wall=stamp.wall)
        attempt.held_until = max(attempt.held_until, stamp.made + HOLD_OFF)


def _from(stamp: Stamp, identity: Identity) -> int:
    """Return the date of a named record: readers search for earlier copies from then on."""
    since = stamp.date - int(identity.window * 1000)
    if identity.first is not None:
        since = max(since, min(identity.first, stamp.date))
    return max(0, since)
