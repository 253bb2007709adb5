"""Dead letters for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kinesis_sdk.common.dead_letters import History, Origin
from kinesis_sdk.dead_letters.letter import DeadLetter, State

SHARD = "shardId-000000000003"


def letter(number: int = 0, **changes: Any) -> DeadLetter:
    """Return a letter; the same number gives the same identity."""
    data = changes.pop("data", b'{"n": %d}' % number)
    history = History(
        origin=changes.pop("origin", Origin("orders", changes.pop("shard", SHARD), str(1000 + number), 0)),
        error=changes.pop("error", "ValueError"),
        attempt=changes.pop("attempt", 1),
        first_failed=1_700_000_000_000,
    )
    values: dict[str, Any] = {
        "application": "billing",
        "partition_key": f"key-{number}",
        "explicit_hash_key": None,
        "headers": {"tenant": b"a\xff"},
        "data": data,
        "size": len(data),
        "set_aside": 1_700_000_000_000 + number,
        "state": State.OPEN,
    }
    return DeadLetter(history=history, **{**values, **changes})


class MemoryLetters:
    """A store in memory.

    Attributes:
        on_write: Called around each write, with True before and False after it.
    """

    def __init__(self) -> None:
        self.location = "memory"
        self.unreadable = 0
        self.on_write: Callable[[bool], object] = lambda _: None
        self._letters: dict[str, DeadLetter] = {}

    def keep(self, one: DeadLetter) -> None:
        self._write({one.id: one})

    def letters(self, *, payload: bool = False) -> Iterator[DeadLetter]:
        for one in list(self._letters.values()):
            yield one if payload else one.without_payload()

    def mark(self, letters: Sequence[DeadLetter], state: State) -> None:
        changed = [self._letters[one.id] for one in letters]
        if state is State.REPLAYED:
            changed = [one for one in changed if one.state is State.REPLAYING]
        self._write({one.id: replace(one, state=state) for one in changed})

    def drop(self, letters: Sequence[DeadLetter]) -> None:
        self._write({one.id: None for one in letters})

    def close(self) -> None:
        pass

    def _write(self, changes: Mapping[str, DeadLetter | None]) -> None:
        self.on_write(True)
        self._letters = {
            identity: one for identity, one in {**self._letters, **changes}.items() if one is not None
        }
        self.on_write(False)
