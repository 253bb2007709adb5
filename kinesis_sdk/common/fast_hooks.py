"""Hooks on botocore clients. See `kinesis_sdk.common.fastpath` for what they are for."""

from __future__ import annotations

import threading
import weakref
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.truncated_responses import reject_truncated_responses

MARK = "kinesis_sdk.call"
"""Key in botocore's request context, which the hooks of one call share."""

State = TypeVar("State")


class Equipment(Generic[State]):
    """Hooks on clients, registered on first sight, and what is known about each client.

    Args:
        make_state: Makes the state of a client.
        register: Registers the hooks with a client's event system.
    """

    def __init__(self, make_state: Callable[[], State], register: Callable[[Any], None]) -> None:
        self._make_state = make_state
        self._register = register
        self._lock = threading.Lock()
        self._known: weakref.WeakKeyDictionary[Any, State] = weakref.WeakKeyDictionary()

    def of(self, client: Any) -> State | None:
        """The state of a client; None if it is none of botocore's for Kinesis, speaking JSON."""
        from botocore.client import BaseClient

        # The type and not isinstance: a mock with a spec says yes to that.
        if not issubclass(type(client), BaseClient):
            return None
        with self._lock:
            state = self._known.get(client)
            if state is None and _speaks_json(client.meta.service_model):
                reject_truncated_responses(client)
                self._register(client.meta.events)
                state = self._known[client] = self._make_state()
        return state


def _speaks_json(model: Any) -> bool:
    # Today that is all that botocore speaks with Kinesis. botocore 1.38 does not resolve protocols yet.
    protocol = getattr(model, "resolved_protocol", None) or model.metadata.get("protocol")
    return bool(model.service_name == "kinesis" and protocol == "json")


@contextmanager
def decoding(operation: str) -> Iterator[None]:
    """Answers that can not be decoded are the service's fault, in whatever layer that is noticed."""
    try:
        yield
    except (UnicodeDecodeError, Base64Error) as error:
        raise ProtocolError(f"{operation}: the answer can not be decoded: {error}") from error
