"""Facts that a script finds about a service, and the tools of scripts: clients, streams, tables and waits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, timezone
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import AdminError
from kinesis_sdk.verify.scratch import TAG, Scratch

_SAFE_INTEGER = 1 << 53
_URL = re.compile(r"https?://[^\s\"']*")
_ARN = re.compile(r"arn:aws[^\s\"']*")
_ACCOUNT = re.compile(r"(?<![0-9A-Za-z-])[0-9]{12}(?![0-9])")


class Notes:
    """The facts of one script, each a JSON value without names of this run, URLs, ARNs or account numbers.

    Args:
        scratch: Clients of this run, and the streams and tables that they create.
        clock: Clock of this machine.
        poll: Seconds between two checks of a condition.
        patience: Maximum seconds to wait for a condition.

    Attributes:
        facts: Values by name, in the order in which they were found.
        kinesis: Client of Kinesis.
        dynamodb: Client of DynamoDB.
        streams: Client of DynamoDB Streams.
    """

    def __init__(self, scratch: Scratch, *, clock: Clock, poll: float = 1.0, patience: float = 900.0) -> None:
        self.facts: dict[str, Any] = {}
        self.scratch = scratch
        self.kinesis: Any = scratch.client("kinesis")
        self.dynamodb: Any = scratch.client("dynamodb")
        self.streams: Any = scratch.client("dynamodbstreams")
        self._clock = clock
        self._poll = poll
        self._patience = patience

    def fact(self, name: str, value: Any) -> None:
        """Note a value."""
        if name in self.facts:
            raise AssertionError(f"two facts are named {name!r}")
        self.facts[name] = shown(value, self.scratch.prefix)

    def call(
        self, name: str, method: Callable[..., Any], see: Callable[[Any], Any] | None = None, **request: Any
    ) -> Any:
        """Make a call and note its error, or the fact that `see` returns for its response; return the response, or None after an error."""
        try:
            answer = method(**request)
            value = "ok" if see is None else see(answer)
        except ClientError as error:
            answer = None
            metadata = error.response["ResponseMetadata"]
            value = f"{metadata.get('HTTPStatusCode')} {error.response['Error']['Code']}"
        except BotoCoreError as error:
            answer, value = None, type(error).__name__
        self.fact(name, value)
        return answer

    def now(self) -> datetime:
        """Return the time of this machine."""
        return datetime.fromtimestamp(self._clock.time(), timezone.utc)

    def wait(self, seconds: float) -> None:
        """Wait; raises `LimitReachedError` if the time of the run is over."""
        self.scratch.meter.check()
        self.scratch.sleep(seconds)

    def settle(self) -> None:
        """Wait until a service that is only eventually consistent shows an earlier write."""
        self.wait(self._poll)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds; raises `AdminError` with ``what`` if this takes too long."""
        deadline = self._clock.monotonic() + self._patience
        while not condition():
            if self._clock.monotonic() >= deadline:
                raise AdminError(f"gave up after {self._patience:g} s of waiting until {what}")
            self.wait(self._poll)

    # -- streams and tables, which are deleted afterwards --------------------------------------------------------

    def name(self) -> str:
        """Return a new name."""
        return self.scratch.name()

    @property
    def absent(self) -> str:
        """A name with the prefix of this run that no stream or table has."""
        return f"{self.scratch.prefix}absent"

    def stream(self, shards: int = 1, **more: Any) -> str:
        """Create a stream and wait until it is ACTIVE; return its name."""
        name = self.name()
        self.kinesis.create_stream(StreamName=name, ShardCount=shards, **more)
        self.active(name)
        return name

    def active(self, name: str) -> dict[str, Any]:
        """Wait until a stream is ACTIVE; return its summary."""
        found: dict[str, Any] = {}

        def is_active() -> bool:
            answer = self.kinesis.describe_stream_summary(StreamName=name)
            found.update(answer["StreamDescriptionSummary"])
            return bool(found["StreamStatus"] == "ACTIVE")

        self.until(is_active, f"{name} is ACTIVE")
        return found

    def consumer_active(self, arn: str) -> dict[str, Any]:
        """Wait until a registered consumer is ACTIVE; return its description."""
        found: dict[str, Any] = {}

        def is_active() -> bool:
            found.update(self.kinesis.describe_stream_consumer(ConsumerARN=arn)["ConsumerDescription"])
            return bool(found["ConsumerStatus"] == "ACTIVE")

        self.until(is_active, "a registered consumer is ACTIVE")
        return found

    def table(self, *, sort: bool = False, **more: Any) -> str:
        """Create a table with the key ``k`` (text) and, with `sort`, ``s`` (a number); return its name."""
        name = self.name()
        keys = [("k", "HASH", "S")] + ([("s", "RANGE", "N")] if sort else [])
        self.dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind, _ in keys],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": type_} for key, _, type_ in keys],
            BillingMode="PAY_PER_REQUEST",
            **more,
        )
        self.table_active(name)
        return name

    def table_active(self, name: str) -> dict[str, Any]:
        """Wait until a table and its indexes are ACTIVE; return its description."""
        found: dict[str, Any] = {}

        def is_active() -> bool:
            found.clear()
            found.update(self.dynamodb.describe_table(TableName=name)["Table"])
            indexes = found.get("GlobalSecondaryIndexes", ())
            return {found["TableStatus"], *(index["IndexStatus"] for index in indexes)} == {"ACTIVE"}

        self.until(is_active, f"{name} is ACTIVE")
        return found

    def other_tags(self, answer: Mapping[str, Any]) -> list[Any]:
        """Return the tags of a stream without the tag of this run."""
        return [tag for tag in answer["Tags"] if tag["Key"] != TAG]


def shown(value: Any, prefix: str) -> Any:
    """Return a value in JSON form, without names of a run, URLs, ARNs or account numbers."""
    if isinstance(value, str):
        text = _URL.sub("<url>", value.replace(prefix, "<name>"))
        return _ACCOUNT.sub("<account>", _ARN.sub("<arn>", text))
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return value if abs(value) < _SAFE_INTEGER else str(value)
    if isinstance(value, (bytes, bytearray)):
        return shown(bytes(value).decode("ascii", "backslashreplace"), prefix)
    if isinstance(value, Mapping):
        return {shown(str(key), prefix): shown(one, prefix) for key, one in value.items()}
    if isinstance(value, AbstractSet):
        return sorted((shown(one, prefix) for one in value), key=repr)
    return [shown(one, prefix) for one in value]
