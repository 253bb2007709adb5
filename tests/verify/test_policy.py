"""The policy of a run: it allows each request on the stream or table that the request names, and nothing that no request needs."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from typing import Any

from kinesis_sdk.testing import FakeAws, VirtualClock
from kinesis_sdk.verify import STEPS, Meter, Notes, Scratch, policy
from tests.verify.houses import SERVICES

ACCOUNT, REGION = "123456789012", "eu-west-1"
OTHERWISE = {
    "kinesis:AddTagsToStream": "CreateStream with tags, too",
    "dynamodb:TagResource": "CreateTable with tags",
    "dynamodb:ListTagsOfResource": "the removal",
    "kinesis:ListStreams": "the removal, too",
}
"""Actions that no request of a script has by name, or not only, and what needs them."""


def needed(service: str, operation: str, request: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the actions that AWS asks for, with their resources; ``*`` where a request names none."""
    if operation == "TransactWriteItems":
        for item in request["TransactItems"]:
            ((kind, effect),) = item.items()
            yield (
                f"dynamodb:{'ConditionCheckItem' if kind == 'ConditionCheck' else kind + 'Item'}",
                table(effect["TableName"]),
            )
        return
    prefix = "kinesis" if service == "kinesis" else "dynamodb"
    names = [
        *(table(name) for name in request.get("RequestItems", ())),
        *(
            f"arn:aws:kinesis:{REGION}:{ACCOUNT}:stream/{request[key]}"
            for key in ("StreamName",)
            if key in request
        ),
        *(request[key] for key in ("StreamARN", "ConsumerARN", "StreamArn", "ResourceArn") if key in request),
        *(table(request[key]) for key in ("TableName",) if key in request),
    ]
    for name in names or ["*"]:
        yield f"{prefix}:{operation}", name


def table(name: str) -> str:
    return f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}"


class Asked:
    """A client that notes what its requests need."""

    def __init__(self, service: str, client: Any, found: set[tuple[str, str]]) -> None:
        self._service, self._client, self._found = service, client, found

    def __getattr__(self, method: str) -> Any:
        operation = "".join(part.capitalize() for part in method.split("_"))

        def call(**request: Any) -> Any:
            self._found.update(needed(self._service, operation, request))
            return getattr(self._client, method)(**request)

        return call


def test_the_policy_allows_what_is_asked_for_and_nothing_else() -> None:
    clock = VirtualClock()
    aws = FakeAws(clock=clock, throttle=False, sleep=clock.advance, region=REGION, account_id=ACCOUNT)
    found: set[tuple[str, str]] = set()
    clients = {service: Asked(service, aws.client(service), found) for service in SERVICES}
    meter = Meter(max_usd=100.0, max_seconds=1e6, clock=clock)
    scratch = Scratch(clients, run="0123abcd", meter=meter, sleep=clock.advance)
    for step in STEPS:
        if step.expected is None:
            step.run(Notes(scratch, clock=clock))
    statements = [(part["Action"], part["Resource"]) for part in policy(REGION, ACCOUNT)["Statement"]]
    used: set[str] = set()
    for action, resource in found:
        # What names nothing is refused, or a page token or an iterator names it.
        anywhere = resource == "*" or " " in resource
        assert any(
            action in actions
            and (anywhere or any(fnmatch.fnmatchcase(resource, one) for one in as_list(resources)))
            for actions, resources in statements
        ), (action, resource)
        used.add(action)
    allowed = {action for actions, _ in statements for action in actions}
    assert allowed - used <= set(OTHERWISE)
    assert not any(resource == "*" for actions, resource in statements if "kinesis:DeleteStream" in actions)


def as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
