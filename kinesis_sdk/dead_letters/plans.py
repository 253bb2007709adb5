"""Plans of replays and of drops, which commands and the console show before they ask for confirmation: see `kinesis_sdk.admin.changes`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from kinesis_sdk.admin import ChangeDescription, Command, Result, Status, Write
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.text import printable
from kinesis_sdk.dead_letters.letter import DeadLetter, State
from kinesis_sdk.dead_letters.replay import UNCONFIRMED, ReplayProgress, Target, replay
from kinesis_sdk.dead_letters.store import MAX_LETTERS, DeadLetterStore, Group, Grouped, Selection

_DROP_CHUNK = 500
_MAX_REFUSED = 10
"""Maximum number of streams that a rejection names."""

Audit = Callable[..., None]
"""Appends an event, with fields, to the audit log of a change; raises AuditLogError on failure."""


@dataclass(kw_only=True)
class LetterChange:
    """A planned replay or drop of letters. Implements `Planned`.

    Attributes:
        store: The letters' store.
        selection: Which letters.
        command: The command that makes the change.
        target: Target of the replay; None to drop the letters.
        limit: Maximum letters; None for all.
        among: Identities of the letters of an earlier plan that was shown; None for all letters.
        audit: The audit log.
        report: Called with the progress.
        now_millis: Returns epoch milliseconds.

    Raises:
        ConfigError: If the target does not accept a letter.
        DeadLetterError: If the store cannot be read.
    """

    store: DeadLetterStore
    selection: Selection
    command: Command
    target: Target | None
    limit: int | None = None
    among: frozenset[str] | None = None
    audit: Audit = lambda *_, **__: None
    report: Callable[[ReplayProgress], None] = lambda _: None
    now_millis: Callable[[], int] = lambda: round(time.time() * 1000)
    found: Grouped = field(init=False)
    _planned: set[str] = field(init=False, default_factory=set)
    _refused: set[str] = field(init=False, default_factory=set)
    _progress: ReplayProgress | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        letters, among = self.store.letters(payload=False), self.among
        if among is not None:
            letters = (letter for letter in letters if letter.id in among)
        chosen = filter(self.selection.accepts, letters)
        self.found = Grouped.of(map(self._noted, islice(chosen, self.limit)))
        if self._refused:
            streams = ", ".join(sorted(self._refused))
            raise ConfigError(
                "allow_stream",
                streams,
                "confirmed streams",
                problem=f"letters say that their records came from {streams}, which is not confirmed, and a letter can be forged: {UNCONFIRMED}",
            )

    @property
    def identities(self) -> frozenset[str]:
        """Identities of the letters of this plan, before it is carried out."""
        return frozenset(self._planned)

    def _noted(self, letter: DeadLetter) -> DeadLetter:
        if len(self._planned) < MAX_LETTERS:
            self._planned.add(letter.id)
        if self.target is not None and len(self._refused) < _MAX_REFUSED and not self.target.accepts(letter):
            self._refused.add(letter.history.origin.stream)
        return letter

    def _chosen(self, *, payload: bool) -> Iterator[DeadLetter]:
        """Yield the letters of the plan that are still selected, without letters that arrived after the user agreed to the plan."""
        for letter in self.store.letters(payload=payload):
            if letter.id in self._planned and self.selection.accepts(letter):
                self._planned.remove(
                    letter.id
                )  # a queue returns a letter again in this pass if it fails again
                yield letter

    @property
    def description(self) -> ChangeDescription:
        """See `Planned.description`."""
        found, verb = self.found, "Drop" if self.target is None else "Replay"
        letters = f"{found.letters:,} dead letter{'' if found.letters == 1 else 's'}"
        to = "" if self.target is None else f" to {self.target.name}"
        warnings = []
        if found.ungrouped:
            warnings.append(f"{found.ungrouped:,} of them are in groups beyond the ones that are shown")
        if self.store.unreadable:
            warnings.append(
                f"{self.store.unreadable:,} entries of {self.store.location} are not dead letters and stay as they are"
            )
        if found.letters > MAX_LETTERS:
            warnings.append(
                f"only the first {MAX_LETTERS:,} are done now: run the command again for the rest"
            )
        replaying = sum(group.replaying for group in found.groups)
        if self.target is not None and replaying:
            warnings.append(
                f"a replay of {replaying:,} of them has begun: it is still running, or it was killed. Records that it has replayed come twice, "
                "unless they are dropped as repetitions: by readers of the stream within 300 s, or by a handler that knows their ids"
            )
        return ChangeDescription(
            title=f"{verb} {letters} of {self.store.location}{to}",
            question=f"{verb} {letters}{to}?",
            command=self.command,
            writes=tuple(_write(group, verb.lower()) for group in found.groups),
            effects=(
                ("The letters are gone for good.",)
                if self.target is None
                else ("A letter whose replay fails is open again, with its error.",)
            ),
            warnings=tuple(warnings),
        )

    def apply(self, *, wait: float = 0.0) -> Result:
        """See `Planned.apply`; there is nothing to wait for."""
        del wait
        self._progress = ReplayProgress(total=self.found.letters)
        self.audit("begin", letters=self.found.letters)
        try:
            if self.target is None:
                self._drop(self._progress)
            else:
                replay(
                    self.store,
                    self._chosen(payload=True),
                    self.target,
                    progress=self._progress,
                    now_millis=self.now_millis,
                    on_progress=self.report,
                )
        except BaseException:
            self.audit("failed", done=self._progress.replayed, failed=self._progress.failed)
            raise
        self.audit("done", done=self._progress.replayed, failed=self._progress.failed)
        return self._result(self._progress)

    def _drop(self, progress: ReplayProgress) -> None:
        letters = self._chosen(payload=False)
        while chunk := list(islice(letters, _DROP_CHUNK)):
            self.store.drop(chunk)
            progress.replayed += len(chunk)
            self.report(progress)

    def so_far(self) -> Result | None:
        """See `Planned.so_far`."""
        return None if self._progress is None else self._result(self._progress)

    def _result(self, progress: ReplayProgress) -> Result:
        word = "dropped" if self.target is None else "replayed"
        text = f"{progress.replayed:,} of {progress.total:,} dead letters {word}"
        if progress.failed:
            text += f", {progress.failed:,} failed ({progress.problem}) and are open again"
        left = progress.replayed + progress.failed < progress.total
        return Result(
            status=Status.DONE,
            lines=(f"{text}.",),
            summary=f"{text}.",
            rest=self.command if left else None,
            is_pending=bool(progress.failed),
        )

    def to_dict(self, result: Result | None) -> dict[str, Any]:
        """See `Planned.to_dict`."""
        progress = self._progress
        return {
            "location": self.store.location,
            "target": None if self.target is None else self.target.name,
            "letters": self.found.letters,
            "groups": self.found.groups,
            "done": None if result is None or progress is None else progress.replayed,
            "failed": None if result is None or progress is None else progress.failed,
        }


def _write(group: Group, verb: str) -> Write:
    parts = [f"{group.letters:,} letter{'' if group.letters == 1 else 's'}, {group.size:,} bytes"]
    if group.replaying:
        parts.append(f"{group.replaying:,} with a replay that has begun")
    name = f"{group.error or 'unknown error'}, {printable(group.stream)}, {group.shard_id}"
    if group.application:
        name = f"{printable(group.application)}: {name}"
    return Write(call=verb, row=name, lines=("; ".join(parts),))


def states_of(words: tuple[str, ...]) -> frozenset[State]:
    """Return the states with these names; by default all states but `replayed`."""
    return frozenset(map(State, words)) if words else Selection().states
