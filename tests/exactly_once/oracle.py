"""Counts effects per put, from what programs were told and what the stream holds.

The oracle knows nothing of workers, leases and positions of sinks, and reads the stream with code of its own (`stored_copies`). Records
are told apart by their payloads. Only what is documented as an exception looks at the tags.

| record | effects |
| --- | --- |
| of an idempotent producer, acknowledged | one |
| of an idempotent producer, not acknowledged | one if a valid copy is stored, none otherwise |
| with a `dedup_id` | one, and one more for each copy that no earlier one preceded within its window |
| of any other producer | one for each stored copy |

A service clock (``Date``) that is more than two seconds ahead excuses a second effect at a copy that is a late original, not marked as a
repetition, or that arrived more than 30 s after all earlier ones. Nothing excuses a loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.shards import list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.testing.accounting.stored_copies import CopyPosition, StoredCopy, read_copies
from tests.exactly_once.databases import Effect
from tests.exactly_once.producers import Put
from tests.producer.simulation import copies_of

EARLY = 2.0
"""Seconds by which clocks and arrivals may be off together."""

APART = 30.0
"""Seconds before a repetition in which readers look for its first copy, whatever its date."""


class Tagged(NamedTuple):
    """A copy with what its tag says.

    Attributes:
        copy: The copy.
        marked: Whether it is marked as a repetition.
        date: Its date, in epoch seconds; that of a named record is a window before its sending.
    """

    copy: StoredCopy
    marked: bool
    date: float


class Verdict(NamedTuple):
    """What was compared.

    Attributes:
        effects: Number of effects.
        copies: Stored copies beyond the first of each record of idempotent producers, which readers had to recognize.
        excused: Effects that a clock that is ahead excuses.
        windows: Effects of named records beyond their first window.
    """

    effects: int
    copies: int
    excused: int
    windows: int


class Patient:
    """A client that stays below the limits of reads by letting time pass."""

    def __init__(self, client: Any, clock: Any) -> None:
        self._client, self._clock = client, clock

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def patient(**request: Any) -> Any:
            self._clock.advance(0.5)
            return call(**request)

        return patient


class Oracle:
    """Judges the applications of a schedule. Create it when nothing is stored any more.

    Args:
        client: The stream's client, without faults.
        clock: The virtual clock.
        stream_name: The stream.
        puts: What programs wanted to store, by payload.
        ahead: Seconds by which the ``Date`` of responses was ahead.
    """

    def __init__(
        self, client: Any, clock: Any, stream_name: str, puts: dict[bytes, Put], ahead: float
    ) -> None:
        self._puts = puts
        patient = Patient(client, clock)
        self.copies = read_copies(patient, stream_name)
        self._is_ahead = ahead > EARLY / 2
        tags: dict[CopyPosition, Tagged] = {}
        if self._is_ahead or any(put.window for put in puts.values()):
            tags = _read_tags(patient, stream_name, self.copies)
        # Of each record, the positions with an effect, and those that may have one.
        self.required: dict[bytes, list[CopyPosition]] = {data: [] for data in puts}
        self.excused: dict[bytes, list[CopyPosition]] = {}
        by_data: dict[bytes, list[StoredCopy]] = {data: [] for data in puts}
        for copy in self.copies:
            by_data[copy.data].append(copy)
        self.repeated = 0
        self.windows = 0
        for data, put in puts.items():
            self._judge(put, by_data[data], tags)

    def _judge(self, put: Put, copies: Sequence[StoredCopy], tags: dict[CopyPosition, Tagged]) -> None:
        required = self.required[put.data]
        if not put.idempotent:
            assert not any(copy.is_idempotent for copy in copies)
            required.extend(copy.position for copy in copies)
            assert required or not put.is_acknowledged, f"{put.data!r} is acknowledged and not stored"
            return
        valid = [copy for copy in copies if copy.is_valid]
        assert valid or not put.is_acknowledged, f"{put.data!r} is acknowledged and not stored"
        if not valid:
            return
        self.repeated += len(valid) - 1
        required.append(valid[0].position)
        if len(valid) > 1 and tags:
            excused = self.excused.setdefault(put.data, [])
            for place, copy in enumerate(valid[1:], start=1):
                tagged = tags[copy.position]
                earlier = valid[:place]
                if put.window:
                    if not any(_is_in_window(other, tagged) for other in earlier):
                        required.append(copy.position)
                        self.windows += 1
                elif self._is_ahead and (
                    not tagged.marked or all(copy.arrived - other.arrived > APART for other in earlier)
                ):
                    excused.append(copy.position)

    def lacks(self, effects: Iterable[Effect], *, discards: bool) -> bool:
        """Return whether an application has to process something yet; see `check`."""
        places = {effect.position for effect in effects}
        return any(
            position not in places
            for put in self._puts.values()
            for position in self._required(put, discards=discards)
        )

    def _required(self, put: Put, *, discards: bool) -> list[CopyPosition]:
        required = self.required[put.data]
        if put.idempotent or not discards:
            return required
        return [position for position in required if position not in self._misplaced]

    @property
    def _misplaced(self) -> set[CopyPosition]:
        found: set[CopyPosition] | None = self.__dict__.get("misplaced")
        if found is None:
            found = self.__dict__["misplaced"] = {copy.position for copy in self.copies if not copy.is_valid}
        return found

    def check(self, effects: Sequence[Effect], *, discards: bool) -> Verdict:
        """Compare the effects of an application with what they should be.

        Args:
            effects: Its effects, in order.
            discards: Whether it discards misplaced aggregates of producers that are not idempotent.
        """
        places: dict[bytes, list[CopyPosition]] = {data: [] for data in self._puts}
        for effect in effects:
            assert effect.data in places, f"{effect.data!r} was never put"
            places[effect.data].append(effect.position)
        excused = 0
        for data, put in self._puts.items():
            found = Counter(places[data])
            required = self._required(put, discards=discards)
            for position in required:
                assert found[position] >= 1, f"LOST: {data!r} at {position} has no effect: {_text(put)}"
            twice = {position: number for position, number in found.items() if number > 1}
            assert not twice, f"TWICE: {data!r} took effect more than once at {twice}: {_text(put)}"
            more = found.keys() - set(required)
            permitted = set(self.excused.get(data, ()))
            assert more <= permitted, (
                f"TWICE: {data!r} took effect at {more}, besides {required}: {_text(put)}"
            )
            excused += len(more)
            if put.idempotent and not more and not put.window:
                assert len(places[data]) == (1 if put.is_acknowledged else len(required))
        self._check_order(effects)
        return Verdict(len(effects), self.repeated, excused, self.windows)

    def _check_order(self, effects: Iterable[Effect]) -> None:
        """Check that ordered producers' records took effect in order: an acknowledged one before all that were put later."""
        first: dict[bytes, int] = {}
        for number, effect in enumerate(effects):
            first.setdefault(effect.data, number)
        lanes: dict[str, list[Put]] = {}
        for put in self._puts.values():
            if put.lane is not None:
                lanes.setdefault(put.lane[0], []).append(put)
        for lane, puts in lanes.items():
            newest = -1
            for put in sorted(puts, key=lambda put: put.lane[1] if put.lane else 0):
                number = first.get(put.data)
                if number is None:
                    continue
                assert number > newest, f"ORDER: {put.data!r} of {lane} took effect before an earlier record"
                if put.is_acknowledged:
                    newest = number


def _is_in_window(earlier: StoredCopy, copy: Tagged) -> bool:
    """Whether a copy of a named record arrived in the window before another one."""
    return round(earlier.arrived * 1000) >= round((copy.date - EARLY) * 1000)


def _text(put: Put) -> str:
    return f"{'idempotent' if put.idempotent else 'plain'}, window {put.window:g}, acknowledged: {put.is_acknowledged}"


def _read_tags(client: Any, stream_name: str, copies: Sequence[StoredCopy]) -> dict[CopyPosition, Tagged]:
    by_position = {copy.position: copy for copy in copies}
    tags: dict[CopyPosition, Tagged] = {}
    for shard in list_shards(client, StreamId(stream_name)):
        iterator = client.get_shard_iterator(
            StreamName=stream_name, ShardId=shard.shard_id, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        page = client.get_records(ShardIterator=iterator)
        assert page["MillisBehindLatest"] == 0, "one page has all records of these schedules"
        for item in page["Records"]:
            record = KinesisRecord.from_api(item)
            for sub, copy in enumerate(copies_of(record, shard)):
                position = CopyPosition(shard.shard_id, int(record.sequence_number), sub)
                tags[position] = Tagged(by_position[position], copy.marked, copy.date)
    return tags
