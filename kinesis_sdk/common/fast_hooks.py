"""Registration of the fast path's hooks on botocore clients. `kinesis_sdk.common.fastpath` explains their purpose."""

from __future__ import annotations

import threading
import weakref
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.truncated_responses import reject_truncated_responses

MARK = "kinesis_sdk.call"
"""Key of the SDK's entry in botocore's request context, which the hooks of one call share."""

State = TypeVar("State")


class Equipment(Generic[State]):
    """Registry of clients: registers the hooks with each client on first use, and keeps its state.

    Thread-safe. Clients are referenced weakly.

    Args:
        make_state: Creates the state of a client.
        register: Registers the hooks with the event system of a client.
    """

    def __init__(self, make_state: Callable[[], State], register: Callable[[Any], None]) -> None:
        self._make_state = make_state
        self._register = register
        self._lock = threading.Lock()
        self._known: weakref.WeakKeyDictionary[Any, State] = weakref.WeakKeyDictionary()

    def of(self, client: Any) -> State | None:
        """Return the state of a client; None for anything but a botocore client for Kinesis that uses JSON."""
        if not speaks_json(client):
            return None
        with self._lock:
            state = self._known.get(client)
            if state is None:
                reject_truncated_responses(client)
                self._register(client.meta.events)
                state = self._known[client] = self._make_state()
        return state


def speaks_json(client: Any) -> bool:
    """Return whether an object is a botocore client for Kinesis that uses JSON."""
    from botocore.client import BaseClient

    # Not isinstance: a mock with a spec passes that check.
    if not issubclass(type(client), BaseClient):
        return False
    model = client.meta.service_model
    # Today, botocore uses only JSON for Kinesis. botocore 1.38 does not resolve protocols yet.
    protocol = getattr(model, "resolved_protocol", None) or model.metadata.get("protocol")
    return bool(model.service_name == "kinesis" and protocol == "json")


class decoding:  # noqa: N801 - as `translate_errors`
    """Raise `ProtocolError` for a response that cannot be decoded, whatever layer finds it."""

    __slots__ = ("_operation",)

    def __init__(self, operation: str) -> None:
        self._operation = operation

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, (UnicodeDecodeError, Base64Error)):
            raise ProtocolError(f"{self._operation}: cannot decode the response: {error}") from error
