"""Messages of the daemon by their ``action``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kinesis_sdk.kclpy import messages


class MalformedAction(Exception):  # noqa: N818 - the name in amazon_kclpy
    """A message that does not exist in this version of the protocol."""


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], messages.Message]] = {
    "initialize": messages.InitializeInput,
    "processRecords": messages.ProcessRecordsInput,
    "leaseLost": messages.LeaseLostInput,
    "shardEnded": messages.ShardEndedInput,
    "shutdownRequested": messages.ShutdownRequestedInput,
    "checkpoint": messages.CheckpointInput,
    "record": messages.Record,
}


def message_decode(json_dict: Mapping[str, Any]) -> messages.Message:
    """Return the object of a message; also usable as ``object_hook`` of `json.loads`.

    Args:
        json_dict: The message.

    Raises:
        MalformedAction: If the message has no ``action``, or an unknown one.
        KeyError: If the message lacks a field.
    """
    # The text of a message may hold payloads, so only its action is shown.
    action = json_dict.get("action") if isinstance(json_dict, Mapping) else None
    kind = _KINDS.get(action) if isinstance(action, str) else None
    if kind is None:
        problem = "a message without an action" if action is None else f"the unknown action {action!r}"
        raise MalformedAction(f"received {problem}; expected one of: {', '.join(_KINDS)}")
    return kind(json_dict)
