"""Dead letters for tests."""

from __future__ import annotations

from typing import Any

from kinesis_sdk.common.dead_letters import History, Origin
from kinesis_sdk.dead_letters.letter import DeadLetter, State

SHARD = "shardId-000000000003"


def letter(number: int = 0, **changes: Any) -> DeadLetter:
    """Return a letter; the same number gives the same identity."""
    data = changes.pop("data", b'{"n": %d}' % number)
    history = History(
        origin=Origin("orders", changes.pop("shard", SHARD), str(1000 + number), 0),
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
