"""`DeadLetterStore`: the store of dead letters for commands, the console and hooks; and the selection of letters."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kinesis_sdk.common.errors import DeadLetterError
from kinesis_sdk.dead_letters.letter import DeadLetter, State

MAX_LETTERS = 100_000
"""Maximum letters of a file or a stream that one command reads; their identities take about 20 MB."""
MAX_GROUPS = 1_000
"""Maximum number of groups; further letters are counted together."""


class DeadLetterStore(Protocol):
    """A place where dead letters are kept. `keep` is thread-safe; all other methods are for one thread at a time.

    Keeping a letter again, because its record failed again, reopens it.

    Attributes:
        location: The location as text, without passwords.
        unreadable: Entries of the last pass of `letters` that are not dead letters.
    """

    location: str
    unreadable: int

    def keep(self, letter: DeadLetter) -> None:
        """Store a letter; it is durable when this returns.

        Raises:
            DeadLetterError: If the letter cannot be stored.
        """

    def letters(self, *, payload: bool = False) -> Iterator[DeadLetter]:
        """Yield the letters that are not dropped, roughly in the order in which they were kept.

        They are read in pages of bounded size. Letters that arrive during the pass may be left out.

        Args:
            payload: Whether to read payloads as well. Otherwise ``data`` may be None.

        Raises:
            DeadLetterError: If the store cannot be read, or has more letters than one pass may read.
        """

    def mark(self, letters: Sequence[DeadLetter], state: State) -> None:
        """Store the state of letters that `letters` has yielded; unknown letters are ignored.

        ``REPLAYED`` is stored only for letters that are ``REPLAYING``. A letter may be open again by then: its record was put
        back into the stream, and failed there before the replay ended. Raises as `keep`.
        """

    def drop(self, letters: Sequence[DeadLetter]) -> None:
        """Permanently remove letters that `letters` has yielded; unknown letters are ignored. Raises as `keep`."""

    def close(self) -> None:
        """Release connections and, for a queue, the messages that were read."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Selects the letters that meet every condition.

    Attributes:
        ids: Identities; empty for all.
        errors: Classes of errors; empty for all.
        shards: Ids of shards; empty for all.
        keys: Partition keys; empty for all.
        applications: Names of applications; empty for all.
        since: Epoch milliseconds; letters that were set aside then or later. None for all.
        until: Epoch milliseconds; letters that were set aside before. None for all.
        states: States; by default, all states but ``REPLAYED``.
    """

    ids: frozenset[str] = frozenset()
    errors: frozenset[str] = frozenset()
    shards: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    applications: frozenset[str] = frozenset()
    since: int | None = None
    until: int | None = None
    states: frozenset[State] = frozenset((State.OPEN, State.REPLAYING))

    def accepts(self, letter: DeadLetter) -> bool:
        """Return whether a letter matches this selection."""
        return (
            letter.state in self.states
            and _fits(self.ids, letter.id)
            and _fits(self.errors, letter.history.error)
            and _fits(self.shards, letter.history.origin.shard_id)
            and _fits(self.keys, letter.partition_key)
            and _fits(self.applications, letter.application)
            and (self.since is None or letter.set_aside >= self.since)
            and (self.until is None or letter.set_aside < self.until)
        )


def _fits(accepted: Collection[str], value: str) -> bool:
    return not accepted or value in accepted


@dataclass(kw_only=True)
class Group:
    """Letters of one error class, application, stream and shard.

    Attributes:
        error: Class of the last error; empty if unknown.
        application: Name of the application; empty if unknown.
        stream: Name of the stream.
        shard_id: The shard.
        letters: Number of letters.
        size: Bytes of their payloads.
        oldest: Epoch milliseconds at which the first letter was set aside.
        newest: Epoch milliseconds at which the last letter was set aside.
        replaying: Number of letters whose replay has begun and has no known end.
        example: Identity of the newest letter.
    """

    error: str
    application: str
    stream: str
    shard_id: str
    letters: int = 0
    size: int = 0
    oldest: int = 0
    newest: int = 0
    replaying: int = 0
    example: str = ""

    def add(self, letter: DeadLetter) -> None:
        """Count a letter."""
        moment = letter.set_aside
        if not self.letters or moment < self.oldest:
            self.oldest = moment
        if not self.letters or moment >= self.newest:
            self.newest, self.example = moment, letter.id
        self.letters += 1
        self.size += letter.size
        self.replaying += letter.state is State.REPLAYING


@dataclass(kw_only=True)
class Grouped:
    """Letters by group.

    Attributes:
        groups: The groups, the largest first.
        letters: Number of all letters.
        size: Bytes of all payloads.
        ungrouped: Number of letters outside these groups.
    """

    groups: list[Group] = field(default_factory=list)
    letters: int = 0
    size: int = 0
    ungrouped: int = 0

    @classmethod
    def of(cls, letters: Iterable[DeadLetter]) -> Grouped:
        """Count letters, which need not fit into memory."""
        found = cls()
        groups: dict[tuple[str, str, str, str], Group] = {}
        for letter in letters:
            found.letters += 1
            found.size += letter.size
            origin = letter.history.origin
            key = (letter.history.error, letter.application, origin.stream, origin.shard_id)
            group = groups.get(key)
            if group is None:
                if len(groups) >= MAX_GROUPS:
                    found.ungrouped += 1
                    continue
                group = groups[key] = Group(error=key[0], application=key[1], stream=key[2], shard_id=key[3])
            group.add(letter)
        found.groups = sorted(groups.values(), key=lambda one: (-one.letters, one.error, one.shard_id))
        return found


class LetterLog:
    """Index of a log of letters and marks, in which the last entry of a letter counts.

    A first pass over the log adds every entry. A second pass checks for each letter of the log whether it still counts.

    Args:
        place: The log, for errors.
        most: Maximum letters.
    """

    def __init__(self, place: str, most: int = MAX_LETTERS) -> None:
        self._place = place
        self._most = most
        self._last: dict[str, tuple[Hashable, State]] = {}

    def add(self, identity: str, position: Hashable) -> None:
        """Note that a letter was kept at a position of the log."""
        if identity not in self._last and len(self._last) >= self._most:
            raise DeadLetterError(
                f"{self._place} has more than {self._most:,} dead letters, the maximum for one pass: keep this many in a database"
            )
        self._last[identity] = (position, State.OPEN)

    def mark(self, identity: str, state: State | None) -> None:
        """Note the state of a letter; None if it was dropped."""
        found = self._last.get(identity)
        if found is None:
            return  # the letter has expired, or the mark is forged
        if state is None:
            del self._last[identity]
        elif state is not State.REPLAYED or found[1] is State.REPLAYING:
            self._last[identity] = (found[0], state)

    def state_of(self, identity: str, position: Hashable) -> State | None:
        """Return the state of the letter that was kept at a position; None if it does not count."""
        found = self._last.get(identity)
        return None if found is None or found[0] != position else found[1]
