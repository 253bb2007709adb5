"""A fake account in virtual time, with a verification in it, and ways to interrupt it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kinesis_sdk.admin import Connection
from kinesis_sdk.testing import FakeAws, VirtualClock
from kinesis_sdk.verify import Remover, Verification

SERVICES = ("kinesis", "dynamodb", "dynamodbstreams")
CREATES = ("CreateStream", "CreateTable", "RegisterStreamConsumer")
CHANGES = (
    *CREATES,
    "SplitShard",
    "MergeShards",
    "UpdateShardCount",
    "UpdateTable",
    "DeregisterStreamConsumer",
)
"""Operations at which runs are interrupted: they change what a removal finds."""


class Killed(BaseException):
    """The process is gone: nothing after it runs."""


class Account:
    """A fake account in virtual time. `before` and `after` are called around each call with its operation."""

    def __init__(self, **options: Any) -> None:
        self.clock = VirtualClock()
        self.aws = FakeAws(clock=self.clock, throttle=False, sleep=self.clock.advance, **options)
        self.calls: list[str] = []
        self.before: Callable[[str], None] = lambda _: None
        self.after: Callable[[str], None] = lambda _: None
        self.is_dead = False

    def connection(self) -> Connection:
        return Connection(clients={service: Watched(self, self.aws.client(service)) for service in SERVICES})

    def verification(self, *only: str, **options: Any) -> Verification:
        settings = {"max_usd": 10.0, "service": "fake", "run": "0123abcd", **options}
        return Verification(
            self.connection(), only=only, clock=self.clock, sleep=self.clock.advance, **settings
        )

    def remover(self) -> Remover:
        return Remover(self.connection(), clock=self.clock, sleep=self.clock.advance)

    def kill(self) -> None:
        """End the process: no call of it is made any more."""
        self.is_dead = True
        raise Killed

    def revive(self) -> None:
        self.is_dead = False
        self.before = self.after = lambda _: None

    def names(self) -> list[str]:
        streams = self.aws.client("kinesis").list_streams()["StreamNames"]
        return [*streams, *self.aws.client("dynamodb").list_tables()["TableNames"]]


class Watched:
    """A client of such an account."""

    def __init__(self, account: Account, client: Any) -> None:
        self._account, self._client = account, client
        self.meta = client.meta

    def __getattr__(self, method: str) -> Any:
        call = getattr(self._client, method)
        operation = "".join(part.capitalize() for part in method.split("_"))

        def watched(**request: Any) -> Any:
            if self._account.is_dead:
                raise Killed
            self._account.calls.append(operation)
            self._account.before(operation)
            try:
                return call(**request)
            finally:
                self._account.after(operation)

        return watched
