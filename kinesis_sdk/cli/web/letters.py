"""Dead letters for the console: passes calls on to `kinesis_sdk.dead_letters`, without decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from kinesis_sdk.admin import Command, Connection
from kinesis_sdk.admin.changes.audit import AuditLog, default_audit_log
from kinesis_sdk.admin.payload import decode_payload
from kinesis_sdk.admin.plain import plain
from kinesis_sdk.admin.records import shown_headers
from kinesis_sdk.cli.spelling import options_of
from kinesis_sdk.cli.web.backend import JsonObject
from kinesis_sdk.cli.web.changes import Act
from kinesis_sdk.cli.web.planner import show
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import ConfigError, without_userinfo
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.dead_letters.letter import DeadLetter, is_letter_id
from kinesis_sdk.dead_letters.location import check_location, open_dead_letters
from kinesis_sdk.dead_letters.plans import LetterChange
from kinesis_sdk.dead_letters.replay import ReplayProgress, StreamTarget
from kinesis_sdk.dead_letters.store import DeadLetterStore, Grouped, Selection

MAX_LETTERS = 100
"""Maximum letters of a page."""
_MAX_TEXT = 1_000
_CHOICES = {
    "letter": "ids",
    "error": "errors",
    "shard": "shards",
    "key": "keys",
    "application": "applications",
}
"""Fields of `Selection` by the names in requests, which are options of the command line."""


class LetterPages:
    """The locations of dead letters from the command line.

    Args:
        connection: Region, profile and endpoint for streams and queues.
        locations: The places.
        allow_streams: Streams into which records may be put back, besides the streams of the letters' application.
        audit_log: None takes the default audit log.

    Raises:
        ConfigError: If a place is not a location.
    """

    def __init__(
        self,
        connection: Connection,
        locations: Sequence[str],
        *,
        allow_streams: Sequence[str] = (),
        audit_log: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        for location in locations:
            check_location("dead_letters", location)
        self._connection = connection
        self._locations = tuple(locations)
        self._allow_streams = tuple(StreamId.parse(stream).name for stream in allow_streams)
        self._audit_log = audit_log
        self._clock = clock or SystemClock()

    @property
    def places(self) -> list[str]:
        """The places, without passwords."""
        return [without_userinfo(location) for location in self._locations]

    def groups(self, place: int, wanted: Mapping[str, str]) -> JsonObject:
        """Count the selected letters by group."""
        with self._opened(place) as store:
            found = Grouped.of(filter(_selection(wanted).accepts, store.letters()))
            groups: JsonObject = plain(found)
            return {**groups, "unreadable": store.unreadable}

    def letters(self, place: int, wanted: Mapping[str, str]) -> JsonObject:
        """Return the first selected letters, without their payloads."""
        with self._opened(place) as store:
            chosen = filter(_selection(wanted).accepts, store.letters())
            found = list(islice(chosen, MAX_LETTERS + 1))
        return {"letters": [_about(one) for one in found[:MAX_LETTERS]], "more": len(found) > MAX_LETTERS}

    def letter(self, place: int, identity: str, *, payload: bool) -> JsonObject | None:
        """Return a letter; None if it no longer exists. Payload and values of headers are included only on request."""
        with self._opened(place) as store:
            found = next((one for one in store.letters(payload=payload) if one.id == identity), None)
        if found is None:
            return None
        if not payload:
            return {**_about(found), "payload": None}
        decoded = decode_payload(found.payload)
        return {
            **_about(found),
            "headers": shown_headers(found.headers),
            "payload": {"kind": decoded.kind.value, "text": decoded.pretty(), "truncated": decoded.truncated},
        }

    def plan(self, place: int, request: Mapping[str, Any]) -> tuple[JsonObject, Act]:
        """Plan a replay into the streams of the letters, or a drop; see `Planner.plan`.

        A browser cannot name a handler: it must not choose code that runs in the console's process. It cannot name a stream, either:
        records go back only into streams of the application in the request, or into streams that were allowed when the console was started.
        """
        operation = request.get("operation")
        if operation not in ("replay-letters", "drop-letters"):
            raise ConfigError("operation", operation or "", "replay-letters or drop-letters")
        wanted = {name: request[name] for name in _CHOICES if request.get(name)}
        if not wanted:
            raise ConfigError("letter", "", "a group or a letter")
        _selection(wanted)
        with self._opened(place) as store, self._target(operation, wanted) as target:
            change = self._change(store, operation, wanted, target)
            planned = show(change.description, "", options_of(self._connection))
            among = change.identities

        def act(line: Any) -> JsonObject:
            with self._opened(place) as store, self._target(operation, wanted) as target:
                change = self._change(
                    store, operation, wanted, target, among=among, report=lambda one: line(_progress(one))
                )
                return {"text": change.apply().summary}

        return planned, act

    def _change(
        self,
        store: DeadLetterStore,
        operation: str,
        wanted: Mapping[str, Any],
        target: StreamTarget | None,
        **more: Any,
    ) -> LetterChange:
        allowed = {} if target is None else {"allow-stream": self._allow_streams}
        command = Command.of(operation, location=store.location, **wanted, **allowed)
        audit = AuditLog(
            self._audit_log or default_audit_log(), clock=self._clock, command=command, table=store.location
        )
        return LetterChange(
            store=store,
            selection=_selection(wanted),
            command=command,
            target=target,
            audit=audit.append,
            now_millis=lambda: round(self._clock.time() * 1000),
            **more,
        )

    @contextmanager
    def _opened(self, place: int) -> Iterator[DeadLetterStore]:
        if not 0 <= place < len(self._locations):
            raise ConfigError("place", place, f"0 to {len(self._locations) - 1}")
        store = open_dead_letters(self._locations[place], connection=self._connection)
        try:
            yield store
        finally:
            store.close()

    @contextmanager
    def _target(self, operation: str, wanted: Mapping[str, Any]) -> Iterator[StreamTarget | None]:
        if operation == "drop-letters":
            yield None
            return
        applications = [wanted["application"]] if "application" in wanted else []
        target = StreamTarget(self._connection, allowed=self._allow_streams, applications=applications)
        try:
            yield target
        finally:
            target.close()


def _selection(wanted: Mapping[str, Any]) -> Selection:
    chosen: dict[str, frozenset[str]] = {}
    for name, field in _CHOICES.items():
        value = wanted.get(name)
        if not value:
            continue
        if (
            not isinstance(value, str)
            or len(value) > _MAX_TEXT
            or (name == "letter" and not is_letter_id(value))
        ):
            raise ConfigError(name, type(value).__name__, f"a text of at most {_MAX_TEXT} characters")
        chosen[field] = frozenset([value])
    return Selection(**chosen)  # type: ignore[arg-type]


def _about(letter: DeadLetter) -> JsonObject:
    history, origin = letter.history, letter.history.origin
    return {
        "id": letter.id,
        "state": letter.state.value,
        "application": letter.application,
        "stream": origin.stream,
        "shard": origin.shard_id,
        "record": str(origin),
        "key": letter.partition_key,
        "error": history.error,
        "attempt": history.attempt,
        "firstFailed": None if history.first_failed is None else history.first_failed / 1000,
        "setAside": letter.set_aside / 1000,
        "size": letter.size,
        "headers": dict.fromkeys(letter.headers, ""),
    }


def _progress(progress: ReplayProgress) -> str:
    failed = f", {progress.failed:,} failed ({progress.problem})" if progress.failed else ""
    return f"{progress.replayed + progress.failed:,} of {progress.total:,} letters{failed}"
