"""Workers that tell their last words, and what the handoffs between them show."""

from __future__ import annotations


def add(fleet, name, **more):
    return fleet.add(name, fleet.recorder(name, checkpoint=False, last_words=True), **more)


def duplicates(fleet):
    data = fleet.data()
    return len(data) - len(set(data))


def keep_putting(fleet, seconds, until=lambda: False, *, pause=0.1):
    """Put four records after each pause. With the default, a batch is always fresh."""
    end = fleet.clock.monotonic() + seconds
    while fleet.clock.monotonic() < end and not until():
        fleet.put(4)
        fleet.run(pause)


def moves(fleet):
    """(shard, from, to, seconds between the old owner's last words and the new owner's first) in order."""
    result = []
    left: dict[str, tuple[float, str]] = {}
    for moment, name, shard, what in fleet.events:
        if what == "shutdown_requested":
            left[shard] = (moment, name)
        elif what == "initialize" and shard in left:
            since, former = left.pop(shard)
            result.append((shard, former, name, moment - since))
    return result


def key(n):
    return f"shardId-{n:012d}"
