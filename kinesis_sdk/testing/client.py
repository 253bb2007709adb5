"""Boto3-shaped client of the fake account, in process: no sockets, no signing, no retries.

Responses have the types of boto3 (bytes, aware datetimes), and errors have the classes of botocore. Code under test behaves differently
only if it uses waiters, paginators or event hooks.
"""

from __future__ import annotations

import base64
import functools
import json
import random
from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timezone
from email.utils import formatdate
from typing import Any, Protocol

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.testing.errors import AwsError, ResponseLostError
from kinesis_sdk.testing.kinesis.fanout import Subscription

_TIMESTAMPS = frozenset(
    {
        "ApproximateArrivalTimestamp",
        "ApproximateCreationDateTime",
        "ConsumerCreationTimestamp",
        "CreationDateTime",
        "CreationRequestDateTime",
        "StreamCreationTimestamp",
        "Timestamp",
    }
)


# Seconds of real waiting between two checks of the clock, because `due` does not show when bandwidth becomes available.
_LONGEST_WAIT, _SHORTEST_WAIT = 0.25, 0.001


class Account(Protocol):
    """The account behind a client; `FakeAws` is one.

    Attributes:
        clock: Clock of the account.
        is_virtual: Whether only a test advances the clock.
        sleep: Called with the seconds for which a subscription waits on a virtual clock.
        date_offset: Seconds by which the ``Date`` header is ahead of the clock; None if there is no header.
    """

    clock: Clock
    is_virtual: bool
    date_offset: float | None
    sleep: Callable[[float], None]

    def operations(self, service: str) -> Collection[str]:
        """Return the names of a service's operations."""
        ...

    def call(self, service: str, operation: str, request: dict[str, Any]) -> dict[str, Any] | bytes:
        """Carry out one call."""
        ...


def _operation(method: str) -> str:
    return "".join(part.capitalize() for part in method.split("_"))


@functools.lru_cache(maxsize=16)
def _http_date(seconds: int) -> str:
    """Return a time as in a Date header. Cached, because many calls fall into the same second."""
    return formatdate(seconds, usegmt=True)


def _blob(value: Any) -> str:
    data = value.encode() if isinstance(value, str) else bytes(value)
    return base64.b64encode(data).decode()


# Immutable values, which a copy shares. Most values are of these types, so they are tested for first.
_PLAIN = frozenset({str, int, float, bool, type(None)})


def _to_wire(value: Any, blobs: frozenset[str]) -> Any:
    """Return a copy of a request in wire form: blobs as base64 text, datetimes as epoch seconds."""
    if isinstance(value, dict):
        return {
            name: _blob(member)
            if name in blobs and isinstance(member, bytes | bytearray | memoryview | str)
            else member
            if type(member) in _PLAIN
            else [_blob(element) for element in member]
            if name == "BS" and "B" in blobs and isinstance(member, list)
            else _to_wire(member, blobs)
            for name, member in value.items()
        }
    if isinstance(value, list | tuple):
        return [member if type(member) in _PLAIN else _to_wire(member, blobs) for member in value]
    if isinstance(value, datetime):
        # botocore interprets a naive datetime as UTC.
        return (value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)).timestamp()
    return value


def _from_attribute(value: Any) -> Any:
    """Return a copy of DynamoDB values with their blobs as bytes."""
    if isinstance(value, dict):
        return {
            name: (base64.b64decode(member) if name == "B" and isinstance(member, str) else member)
            if type(member) in _PLAIN
            else [base64.b64decode(element) for element in member]
            if name == "BS" and isinstance(member, list)
            else _from_attribute(member)
            for name, member in value.items()
        }
    if isinstance(value, list):
        return [member if type(member) in _PLAIN else _from_attribute(member) for member in value]
    return value


def _from_wire(value: Any) -> Any:
    """Return a copy of a response with datetimes instead of epoch seconds."""
    if isinstance(value, dict):
        return {
            name: datetime.fromtimestamp(member, tz=timezone.utc)
            if name in _TIMESTAMPS and isinstance(member, int | float)
            else member
            if type(member) in _PLAIN
            else _from_wire(member)
            for name, member in value.items()
        }
    if isinstance(value, list):
        return [member if type(member) in _PLAIN else _from_wire(member) for member in value]
    return value


# A generator of its own: calls must not change the numbers of a test that seeds `random`.
_IDS = random.Random()


def _request_id() -> str:
    """Return a random UUID as text, which costs a fraction of creating a `UUID`."""
    text = f"{_IDS.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_DESCRIPTIONS = frozenset({"TableDescription", "Table"})


def _with_records(body: dict[str, Any]) -> dict[str, Any]:
    """Convert the data to bytes and the arrival times to datetimes, in place, in a response with records."""
    arrival = moment = None
    for record in body.get("Records", ()):
        record["Data"] = base64.b64decode(record["Data"])
        # All records of a PutRecords call have the same arrival time.
        if record["ApproximateArrivalTimestamp"] != arrival:
            arrival = record["ApproximateArrivalTimestamp"]
            moment = datetime.fromtimestamp(arrival, tz=timezone.utc)
        record["ApproximateArrivalTimestamp"] = moment
    return body


class FakeEventStream:
    """``EventStream`` of ``subscribe_to_shard``: yields events as boto3 does, until the stream ends.

    On a system clock it waits for the next event, as boto3 does. On a virtual clock it must not wait: without an event, it
    calls the account's `sleep` (which does nothing by default) with the seconds until the next heartbeat, and yields the heartbeat at once.
    Iteration raises EventStreamError if the service ends the stream with an error, and urllib3's ProtocolError if a fault cuts the
    connection.
    """

    def __init__(self, subscription: Subscription, aws: Account) -> None:
        self._subscription = subscription
        self._aws = aws

    def __iter__(self) -> Iterator[dict[str, Any]]:
        from botocore.exceptions import EventStreamError
        from urllib3.exceptions import ProtocolError

        while True:
            try:
                payload = self._next()
            except AwsError as error:
                response: Any = {
                    "Error": {"Code": error.code, "Message": error.message},
                    "ResponseMetadata": {"HTTPStatusCode": error.status},
                }
                raise EventStreamError(response, "SubscribeToShard") from None
            except ResponseLostError as error:
                raise ProtocolError("Connection broken", ConnectionResetError(str(error))) from None
            if payload is None:
                return
            yield {"SubscribeToShardEvent": _with_records(json.loads(payload))}

    def _next(self) -> bytes | None:
        subscription, clock = self._subscription, self._aws.clock
        payload = subscription.take()
        while payload is None and not subscription.is_over:
            pause = max(0.0, subscription.due - clock.monotonic())
            if self._aws.is_virtual:
                self._aws.sleep(pause)
                return subscription.take() or subscription.beat()
            payload = subscription.take(min(pause, _LONGEST_WAIT) or _SHORTEST_WAIT)
        return payload

    def close(self) -> None:
        """End the subscription."""
        self._subscription.close()


class ClientMeta:
    """Metadata of a client, as ``meta`` of a boto3 client. Nothing listens at its `endpoint_url`."""

    def __init__(self, service: str, region: str) -> None:
        self.service_name = service
        self.region_name = region
        self.endpoint_url: str = f"memory://{service}.{region}"


class FakeClient:
    """A boto3-shaped client: ``client.put_records(StreamName=…, Records=[…])``. Thread-safe.

    Raises from its methods:
        botocore.exceptions.ClientError: If the service responds with an error.
        botocore.exceptions.ReadTimeoutError: If a fault drops the response.
    """

    def __init__(self, aws: Account, service: str, *, region: str) -> None:
        self._aws = aws
        self._service = service
        self._known = frozenset(aws.operations(service))
        self._blobs = frozenset({"Data"} if service == "kinesis" else {"B"})
        self.meta: ClientMeta = ClientMeta(service, region)

    def __getattr__(self, method: str) -> Callable[..., dict[str, Any]]:
        operation = _operation(method)
        if method.startswith("_") or operation not in self._known:
            raise AttributeError(f"the fake {self._service} client has no method {method!r}")

        def call(**request: Any) -> dict[str, Any]:
            return self._call(operation, request)

        call.__name__ = method
        # Later accesses find it without __getattr__.
        self.__dict__[method] = call
        return call

    def close(self) -> None:
        """Do nothing; this method exists because boto3's clients have it."""

    def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        request_id = _request_id()
        headers = {"x-amzn-requestid": request_id}
        metadata = {
            "RequestId": request_id,
            "HTTPStatusCode": 200,
            "HTTPHeaders": headers,
            "RetryAttempts": 0,
        }
        offset = self._aws.date_offset
        if offset is not None:
            # From the service's clock: consumers resolve LATEST to it.
            headers["date"] = _http_date(int(self._aws.clock.time() + offset))
        try:
            result = self._aws.call(self._service, operation, _to_wire(request, self._blobs))
        except AwsError as error:
            from botocore.exceptions import ClientError

            members = self._converted(operation, error.members)
            response: Any = {
                **members,
                "Error": {"Message": error.message, "Code": error.code},
                "message": error.message,
                "ResponseMetadata": {**metadata, "HTTPStatusCode": error.status},
            }
            raise ClientError(response, operation) from None
        except ResponseLostError as error:
            from botocore.exceptions import ReadTimeoutError

            raise ReadTimeoutError(endpoint_url=self.meta.endpoint_url, error=str(error)) from None
        return {**self._converted(operation, result), "ResponseMetadata": metadata}

    def _converted(self, operation: str, result: dict[str, Any] | bytes) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(result) if isinstance(result, bytes) else result
        if self._service == "dynamodbstreams":
            records: dict[str, Any] = _from_wire(_from_attribute(body))
            return records
        if operation == "GetRecords":
            return _with_records(body)
        if operation == "SubscribeToShard" and "EventStream" in body:
            return {"EventStream": FakeEventStream(body["EventStream"], self._aws)}
        if self._service == "dynamodb" and not _DESCRIPTIONS & body.keys():
            copied: dict[str, Any] = _from_attribute(body)
            return copied
        converted: dict[str, Any] = _from_wire(body)
        return converted
