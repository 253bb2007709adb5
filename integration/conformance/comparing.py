"""The scripts of `kinesis_sdk.verify` at an endpoint, and the comparison of two sets of facts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import boto3
from botocore.config import Config

from kinesis_sdk.common.clock import SystemClock
from kinesis_sdk.verify import Meter, Notes, Scratch, new_run
from tests import HANG


@dataclass(frozen=True)
class Difference:
    """One fact on which the fake and LocalStack are known to differ.

    Attributes:
        fake: The fake's response.
        localstack: LocalStack's response.
        right: Which of the two responds as AWS documents it.
        why: The rule that decides, or the reason for leaving the fake as it is.
    """

    fake: Any
    localstack: Any
    right: Literal["fake", "localstack", "both", "neither"]
    why: str


def facts_of(script: Callable[[Notes], None], endpoint: str) -> dict[str, Any]:
    """Run a script of `kinesis_sdk.verify` at an endpoint, and return what it found."""
    config = Config(
        retries={"total_max_attempts": 1},
        # Wrong requests must reach the server.
        parameter_validation=False,
        read_timeout=HANG,
    )
    clients = {
        service: boto3.client(service, endpoint_url=endpoint, config=config)
        for service in ("kinesis", "dynamodb", "dynamodbstreams")
    }
    clock = SystemClock()
    meter = Meter(max_usd=1e6, max_seconds=1e6, clock=clock)
    scratch = Scratch(clients, run=new_run(), meter=meter, sleep=time.sleep)
    notes = Notes(scratch, clock=clock, poll=0.03, patience=HANG)
    try:
        script(notes)
    finally:
        scratch.discard()
    return notes.facts


def compare(fake: dict[str, Any], localstack: dict[str, Any], known: dict[str, Difference]) -> list[str]:
    """Return contradictions to the list of known differences, one line each: new, changed and obsolete differences."""
    problems = []
    for name in sorted({*fake, *localstack, *known}):
        absent = "(no such fact)"
        mine, theirs = fake.get(name, absent), localstack.get(name, absent)
        listed = known.get(name)
        if listed is None:
            if mine != theirs:
                problems.append(f"unlisted: {name}: the fake: {mine!r}, LocalStack: {theirs!r}")
        elif (mine, theirs) != (listed.fake, listed.localstack):
            word = "is no longer a difference" if mine == theirs else "has changed"
            problems.append(f"listed, but {word}: {name}: the fake: {mine!r}, LocalStack: {theirs!r}")
    return problems
