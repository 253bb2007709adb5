"""Checks of a daemon fleet's conversations: nothing lost, nothing out of order, each start at the last checkpoint."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from integration.multilang.conversations import Conversation
from integration.multilang.scene import Tapped

Position = tuple[int, int]


def position(record: Mapping[str, Any]) -> Position:
    """Return the position of a record, or of a message with a sequence number."""
    return int(record["sequenceNumber"]), record.get("subSequenceNumber") or 0


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that a child requested, or that its daemon confirmed.

    Attributes:
        t: Time of the message.
        confirmed: Whether this is the daemon's response.
    """

    t: float
    position: Position
    confirmed: bool


def checkpoints_of(conversation: Conversation) -> list[Checkpoint]:
    """Return the checkpoints of a conversation. One without a number stands for everything delivered."""
    found: list[Checkpoint] = []
    delivered: Position | None = None
    for t, who, message in conversation.lines:
        if who == "=":
            continue
        if message["action"] == "processRecords" and message["records"]:
            delivered = position(message["records"][-1])
        elif message["action"] == "checkpoint" and message.get("error") is None:
            asked = position(message) if message["sequenceNumber"] is not None else delivered
            if asked is not None:
                found.append(Checkpoint(t, asked, confirmed=who == ">"))
    return found


def by_shard(daemons: Iterable[Tapped]) -> dict[int, list[Conversation]]:
    """Return all conversations of a fleet that began, by shard, in the order of their start."""
    found: dict[int, list[Conversation]] = {}
    for daemon in daemons:
        for shard, parts in daemon.conversations().items():
            found.setdefault(shard, []).extend(parts)
    return {shard: sorted(parts, key=lambda part: part.lines[0][0]) for shard, parts in found.items()}


def payloads(daemons: Iterable[Tapped]) -> set[str]:
    """Return the data of all records that children received."""
    return {
        base64.b64decode(record["data"]).decode()
        for daemon in daemons
        for parts in daemon.conversations().values()
        for conversation in parts
        for record in conversation.records
    }


def check(daemons: Iterable[Tapped]) -> tuple[int, int]:
    """Check every conversation of a fleet.

    * A child receives its records in order, each once.
    * A child starts at a checkpoint that an earlier child of its shard requested, under any daemon, and not before the last
      confirmed one. (A daemon that is killed or frozen may store a checkpoint without confirming it.)
    * It receives only records after that position.
    * After ``leaseLost``, ``shardEnded`` and ``shutdownRequested`` it receives no records.

    Returns the number of conversations, and of those that continued an earlier one.
    """
    count = continued = 0
    for shard, parts in by_shard(daemons).items():
        for number, conversation in enumerate(parts):
            count += 1
            where = f"shard {shard}, conversation {number}"
            first = conversation.messages(">")[0]
            assert first["action"] == "initialize", where
            began = conversation.lines[0][0]
            known = [one for former in parts[:number] for one in checkpoints_of(former)]
            last = max((one.position for one in known if one.confirmed and one.t < began), default=None)
            starts = position(first) if first["sequenceNumber"].isdigit() else None
            assert starts is None or starts in {one.position for one in known}, where
            assert last is None or (starts is not None and starts >= last), (
                f"{where}: starts at {starts}, but {last} was confirmed"
            )
            continued += starts is not None
            found = [position(record) for record in conversation.records]
            assert found == sorted(set(found)), f"{where}: out of order, or twice"
            assert starts is None or not found or found[0] > starts, f"{where}: before the checkpoint"
            calls = conversation.calls
            ends = [index for index, call in enumerate(calls) if call not in {"initialize", "processRecords"}]
            assert "processRecords" not in calls[min(ends, default=len(calls)) :], where
            assert calls.count("initialize") == 1, where
    return count, continued
