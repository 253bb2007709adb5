"""A client of a service whose calls a test changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Client:
    """A client some of whose calls go to functions of the test: each gets the method that it stands for, and the request.

    boto3 did not make it, so it is read without the fast path.
    """

    def __init__(self, client: Any, **instead: Callable[[Callable[..., Any], dict[str, Any]], Any]) -> None:
        self._client, self._instead = client, instead
        self.meta = client.meta

    def __getattr__(self, name: str) -> Any:
        method, instead = getattr(self._client, name), self._instead.get(name)
        if instead is None:
            return method
        return lambda **request: instead(method, request)
