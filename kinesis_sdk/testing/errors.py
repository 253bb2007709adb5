"""Errors that a fake service raises instead of returning a response.

```
Exception
├── AwsError             an error document with a code, a message and an HTTP status
└── ResponseLostError    the caller gets no response at all (a read timeout, a closed connection)
```
"""

from __future__ import annotations

from typing import Any


class AwsError(Exception):
    """Error document in the form that the service would send.

    Attributes:
        code: Error code without namespace, for example ``ResourceNotFoundException``.
        message: Error message.
        status: HTTP status of the response.
        members: Additional members of the document, for example DynamoDB's ``Item``.
    """

    def __init__(
        self, code: str, message: str, *, status: int = 400, members: dict[str, Any] | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.members: dict[str, Any] = members or {}


class ResponseLostError(Exception):
    """The response never arrives. The kind of fault decides whether the call was carried out."""


def validation(message: str) -> AwsError:
    """Return a ``ValidationException``: the request breaks the service's model."""
    return AwsError("ValidationException", message)


def invalid_argument(message: str) -> AwsError:
    """Return an ``InvalidArgumentException``: the request is well-formed but has no meaning."""
    return AwsError("InvalidArgumentException", message)


def constraint(member: str, value: Any, rule: str) -> AwsError:
    """Return a ``ValidationException`` with the text of the service's request validator."""
    return validation(
        f"1 validation error detected: Value '{value}' at '{member}' failed to satisfy constraint: Member must {rule}"
    )
