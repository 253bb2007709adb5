"""What a fake service raises instead of an answer.

```
Exception
├── AwsError           an error document with a code, a message and an HTTP status
└── AnswerLostError    the caller gets no answer at all (a read timeout, a closed connection)
```
"""

from __future__ import annotations

from typing import Any


class AwsError(Exception):
    """An error document as the service would send it.

    Attributes:
        code: Error code without name space, for example ``ResourceNotFoundException``.
        message: Text for people.
        status: HTTP status of the answer.
        members: Further members of the document, for example DynamoDB's ``Item``.
    """

    def __init__(
        self, code: str, message: str, *, status: int = 400, members: dict[str, Any] | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.members = members or {}


class AnswerLostError(Exception):
    """The request's answer never arrives; whether it was carried out is what the fault decided."""


def validation(message: str) -> AwsError:
    """A ``ValidationException``: the request breaks the service's model."""
    return AwsError("ValidationException", message)


def invalid_argument(message: str) -> AwsError:
    """An ``InvalidArgumentException``: the request is well-formed and makes no sense."""
    return AwsError("InvalidArgumentException", message)


def constraint(member: str, value: Any, rule: str) -> AwsError:
    """A ``ValidationException`` in the words of the service's request validator."""
    return validation(
        f"1 validation error detected: Value '{value}' at '{member}' failed to satisfy constraint: Member must {rule}"
    )
