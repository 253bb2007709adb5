"""The writer's side: the identities that an idempotent producer stamps on its records, by which readers recognize repetitions.

A producer has one `Stamps` for each stream, and calls it at these moments:

| when | call |
|---|---|
| a Kinesis record is begun | `tags`: does it have a table of runs? |
| a record is put | `waits_for_map`, and `refusal` if it cannot wait: nothing is stamped before the shard map is known |
| a request is cut | `stamp` |
| the outcome of an attempt is unknown | `keep` (`outcomes.stored_nothing` decides whether it is) |
| a record fails | `maybe_stored` |
| a response arrives | `observe` |
| a record is put again | `resumed` |

`Identity.held_until` and `Runs.held_until` show how long a record, or a whole aggregate, is held back. Without ``enabled``, the stamps
have no effect.

```
FRESH ─► SENT ─┬─ stored where it belongs ──────────────────► acknowledged
   ▲           ├─ certainly not stored there ─► FRESH, or HELD again if it ever was
   └───────────┤
               └─ may be stored ─► HELD until the hold-off has passed ─► SENT again, marked, with the same identity
```

| state | identity of the record | `Runs.stamp` of its Kinesis record |
|---|---|---|
| FRESH | None; without a date for a record that the application named | None, or of an attempt that stored nothing |
| SENT | as before | of this attempt |
| HELD | with a date: kept until the final result, and each further attempt is marked | as for FRESH |

A record costs nothing until an attempt to send it has an unknown outcome: the numbers of an aggregate's fresh records follow from its
stamp.

Rules:

- A fresh record gets an incarnation, a number and a date each time it is sent: a failed attempt that certainly stored nothing leaves no trace.
- The incarnation is drawn for each request and never continued. A process image may run twice (a restored virtual machine, CRIU,
  SnapStart), and no clock reveals to a process that it was copied. If two copies continued from one state, they would give one identity
  to two records, and readers would drop one of these records. A record that is HELD in the image is repeated by both processes with one
  identity, because it is one put.
- The date is never later than the time at Kinesis of any attempt with this identity. At least `HOLD_OFF` seconds of the monotonic clock
  pass between the first such attempt and the second. So a copy that arrives before the date plus the hold-off is the first
  copy, and readers need no look-up for it.
- The caller of a named record may know a moment before which no attempt to put it began (`Identity.first`). Until an attempt may have been
  stored, the record's date is that moment, which a flag shows (`FIRST`). Its hold-off ends no later than `HOLD_OFF` seconds after this
  attempt, and no later than `FIRST_HOLD_OFF` seconds after the start of another process that may put it.
- A repetition stays marked, with the identity of the first attempt that may have been stored.
- After `REPEAT_WINDOW` seconds, readers do not look back far enough: the record gets a new identity and may be stored twice.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol

from kinesis_sdk.common.errors import InvalidRecordError, KinesisSdkError, PermanentAwsError
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.once.identity import Identity, RecordIdentity, Stamp, resumed
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

if TYPE_CHECKING:
    from kinesis_sdk.common.aggregate_writer import Aggregate

_LOGGER = FieldLogger(logging.getLogger(__name__))

REPEAT_WINDOW = 600.0
"""A record gets a new identity this many seconds after the first attempt that may have been stored. Readers look back 900 s."""

WRAPPING = 132
"""Bytes by which a user record may grow if it is sent as an aggregate of one: magic and digest, the key table and a hash key, its tag and
the one-byte partition key, without its own key."""

_UNDATED = 2.0
"""Seconds by which the wall clock may be ahead. These seconds are subtracted if responses have no ``Date``."""

_FRESH = 600.0
"""Seconds for which the monotonic clock alone advances the ``Date`` of a response."""

_FIRST_NUMBERS = 1 << 40

_CLOCKS = Struct("<3qI")
"""Three clocks in nanoseconds, and a process id."""


_LAPSED = Identity(b"", 0, lapsed=True)
"""For a record without an identity: a former identity lapsed, so the record may have been stored."""


class KnownStream(Protocol):
    """Knowledge of a stream: a producer's `Topology`."""

    @property
    def shard_map(self) -> object | None:
        """The shard map in use; None without a shard map."""

    @property
    def described(self) -> bool:
        """Whether the other properties are known, not only assumed."""

    @property
    def service_places(self) -> bool:
        """Whether the stream places records itself."""


class IdentifiedRecord(Protocol):
    """A user record. ``identity`` is None until an attempt may have been stored, unless the application named it."""

    identity: Identity | None


class StampedEntry(Protocol):
    """A Kinesis record."""

    @property
    def shard_id(self) -> str | None:
        """Predicted shard; None if no shard was predicted."""

    @property
    def records(self) -> Sequence[IdentifiedRecord]:
        """The user records inside."""

    @property
    def aggregate(self) -> Aggregate:
        """The records in encoded form, with their runs."""


def fresh_entropy(size: int) -> bytes:
    """Return up to 32 random bytes; every other process, and every copy of this process image, gets different bytes.

    A restored virtual machine may continue with the kernel's former random state until the kernel is told (VM generation id). But its clocks
    never match the clocks of the other copy to a nanosecond.
    """
    clocks = _CLOCKS.pack(time.time_ns(), time.monotonic_ns(), time.perf_counter_ns(), os.getpid())
    return hashlib.sha256(os.urandom(32) + clocks).digest()[:size]


class Stamps:
    """Identities that a producer stamps on the records of one stream. Not thread-safe.

    ``enabled`` is ``ProducerConfig.idempotent``. ``entropy`` is `fresh_entropy` except in tests. Two producers that draw the same bytes
    in the same millisecond lose records, so ``entropy`` is not the generator that a user may seed. ``begun_anew`` counts user records
    that got a new identity although an earlier attempt may have been stored.
    """

    def __init__(
        self,
        stream: StreamId,
        *,
        enabled: bool,
        wall_clock: Callable[[], float],
        entropy: Callable[[int], bytes] = fresh_entropy,
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
        self._tagging = False
        self._next = int.from_bytes(entropy(5), "big") % _FIRST_NUMBERS

    # ------------------------------------------------------------------ whether

    def tags(self, known: KnownStream) -> bool:
        """Return whether new Kinesis records have a table of runs. A stream that places records itself has no ranges for a check."""
        self._tagging = self.enabled and not known.service_places
        if self.enabled and not self._tagging and known.described and not self._untagged_logged:
            self._untagged_logged = True
            _LOGGER.warning(
                "stream %s places records itself (record distribution AUTO), so idempotent=True has no effect for it, and repetitions are not recognized",
                self._stream,
                extra=log_fields(stream=self._stream),
            )
        return self._tagging

    def wrapping(self, known: KnownStream) -> int:
        """Return the bytes by which the stamp may increase a user record."""
        return WRAPPING if self.enabled and not known.service_places else 0

    def waits_for_map(self, known: KnownStream) -> bool:
        """Return whether records wait for a load. Without a map, their placement cannot be checked, and the time at Kinesis is unknown."""
        return self.enabled and known.shard_map is None and not (known.service_places and known.described)

    def refusal(self, known: KnownStream) -> KinesisSdkError | None:
        """Return the reason why records that wait for the map cannot be sent; None if they can be sent, or if this is not known yet."""
        if known.shard_map is None and known.described and not known.service_places:
            return PermanentAwsError(
                f"idempotent=True needs the permission kinesis:ListShards for stream {self._stream}"
            )
        return None

    def resumed(self, identity: RecordIdentity, now: float) -> Identity:
        """Return the identity of a record that is put again at a given time (monotonic seconds). Thread-safe.

        Raises:
            InvalidRecordError: If the stamps are not enabled: the record could be stored twice.
        """
        if not self.enabled:
            raise InvalidRecordError(
                "identity",
                "the record may be stored, or has a dedup_id; a producer with idempotent=True is needed to put it again",
            )
        return resumed(identity, now)

    def maybe_stored(self, record: IdentifiedRecord) -> bool | None:
        """Return whether an attempt to send a record may have been stored; None if records are sent without identities."""
        if not self._tagging:
            return None
        identity = record.identity
        return identity is not None and identity.may_be_stored

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
        """Return epoch milliseconds that Kinesis has reached; None before a response has shown the time. Thread-safe."""
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

    def stamp(self, entries: Sequence[StampedEntry], now: float) -> None:
        """Give identities to the fresh records of a request that is sent now, and encode the tables of runs."""
        if not self.enabled or all(entry.aggregate.runs is None for entry in entries):
            return
        incarnation, wall = self._entropy(INCARNATION_SIZE), self._wall_clock()
        date = self._date(now, wall)
        for entry in entries:
            runs = entry.aggregate.runs
            if runs is not None:
                runs.stamp = Stamp(incarnation, date, self._next, now, wall)
                self._next += entry.aggregate.count
                table = self._runs(entry.records, runs.starts, entry.aggregate.count, runs.stamp)
                runs.tag = encode_table(self._stream.name, entry.shard_id, table)

    def _runs(
        self, records: Sequence[IdentifiedRecord], starts: Sequence[int], count: int, stamp: Stamp
    ) -> Sequence[Run]:
        if len(starts) == 1 and records[0].identity is None:  # nearly every aggregate
            return (Run(count, HOLD_OFF, 0, stamp.incarnation, stamp.date, stamp.number),)
        return [
            self._run(records[start:end], stamp, start)
            for start, end in zip(starts, [*starts[1:], count], strict=True)
        ]

    def _run(self, records: Sequence[IdentifiedRecord], stamp: Stamp, start: int) -> Run:
        """Return the run of the records from an index of their Kinesis record on."""
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

    def keep(self, entry: StampedEntry) -> None:
        """Keep the identities of an attempt that may have been stored: from now on, its records are held and marked.

        Does nothing for an entry that was sent without identities.
        """
        runs = entry.aggregate.runs
        stamp = None if runs is None else runs.stamp
        if runs is None or stamp is None:
            return
        runs.stamp = None
        for index, record in enumerate(entry.records):
            identity = record.identity
            if identity is None or not identity.incarnation:
                record.identity = Identity(
                    stamp.incarnation, stamp.number + index, stamp.date, 0.0, stamp.made, stamp.wall
                )
            elif identity.date is None:
                date = _from(stamp, identity)
                if identity.first is not None:
                    # The date and the window then show when the record was first sent, as for other named records; see
                    # `resumed`.
                    identity = identity._replace(window=max(1.0, (stamp.date - date) / 1000), first=None)
                record.identity = identity._replace(date=date, made=stamp.made, wall=stamp.wall)
        runs.held_until = max(runs.held_until, stamp.made + HOLD_OFF)


def _from(stamp: Stamp, identity: Identity) -> int:
    """Return the date of a named record: readers search for earlier copies from then on."""
    since = stamp.date - int(identity.window * 1000)
    if identity.first is not None:
        since = max(since, min(identity.first, stamp.date))
    return max(0, since)
