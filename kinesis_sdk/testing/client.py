"""A client in the shape of boto3's, straight into the fake account: no sockets, no signing, no retries.

Answers have the types that boto3 gives them (bytes, aware datetimes), errors are botocore's own classes, so code under
test cannot tell the difference unless it asks for boto3's extras (waiters, paginators, event hooks).
"""

from __future__ import annotations

import base64
import functools
import json
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from kinesis_sdk.testing.errors import AnswerLostError, AwsError

if TYPE_CHECKING:
    from kinesis_sdk.testing.aws import FakeAws
    from kinesis_sdk.testing.kinesis.fanout import Subscription

_TIMESTAMPS = frozenset(
    {
        "ApproximateArrivalTimestamp",
        "ConsumerCreationTimestamp",
        "CreationDateTime",
        "StreamCreationTimestamp",
        "Timestamp",
    }
)


# Seconds of real waiting between two looks at the clock: bandwidth has no moment of its own in `due`.
_LONGEST_WAIT, _SHORTEST_WAIT = 0.25, 0.001


def _operation(method: str) -> str:
    return "".join(part.capitalize() for part in method.split("_"))


@functools.lru_cache(maxsize=16)
def _http_date(seconds: int) -> str:
    """A moment (epoch seconds) as in a Date header; many calls come in the same second."""
    return formatdate(seconds, usegmt=True)


def _blob(value: Any) -> str:
    data = value.encode() if isinstance(value, str) else bytes(value)
    return base64.b64encode(data).decode()


def _to_wire(value: Any, blobs: frozenset[str]) -> Any:
    """A copy of a request in wire form: blobs as base64 text, datetimes as epoch seconds."""
    if isinstance(value, dict):
        return {
            name: _blob(member)
            if name in blobs and isinstance(member, bytes | bytearray | memoryview | str)
            else [_blob(element) for element in member]
            if name == "BS" and "B" in blobs and isinstance(member, list)
            else _to_wire(member, blobs)
            for name, member in value.items()
        }
    if isinstance(value, list | tuple):
        return [_to_wire(member, blobs) for member in value]
    if isinstance(value, datetime):
        # botocore takes a naive datetime for UTC.
        return (value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)).timestamp()
    return value


def _from_attribute(value: Any) -> Any:
    """A copy of DynamoDB values with their blobs as bytes."""
    if isinstance(value, dict):
        return {
            name: base64.b64decode(member)
            if name == "B" and isinstance(member, str)
            else [base64.b64decode(element) for element in member]
            if name == "BS" and isinstance(member, list)
            else _from_attribute(member)
            for name, member in value.items()
        }
    return [_from_attribute(member) for member in value] if isinstance(value, list) else value


def _from_wire(value: Any) -> Any:
    """A copy of an answer with datetimes for epoch seconds."""
    if isinstance(value, dict):
        return {
            name: datetime.fromtimestamp(member, tz=timezone.utc)
            if name in _TIMESTAMPS and isinstance(member, int | float)
            else _from_wire(member)
            for name, member in value.items()
        }
    return [_from_wire(member) for member in value] if isinstance(value, list) else value


_DESCRIPTIONS = frozenset({"TableDescription", "Table"})


def _with_records(body: dict[str, Any]) -> dict[str, Any]:
    """An answer that holds records, with their data as bytes and their arrival as a datetime; changed in place."""
    for record in body.get("Records", ()):
        record["Data"] = base64.b64decode(record["Data"])
        record["ApproximateArrivalTimestamp"] = datetime.fromtimestamp(
            record["ApproximateArrivalTimestamp"], tz=timezone.utc
        )
    return body


class FakeEventStream:
    """What ``subscribe_to_shard`` returns as ``EventStream``: events as boto3 yields them, until the stream ends.

    On a real clock it waits for the next event as boto3's does. On a virtual one nothing may wait: where there is
    nothing to tell, it lets the account sleep until the next heartbeat (which does nothing unless the account was
    given a `sleep`) and yields that at once.

    Raises from iteration:
        botocore.exceptions.EventStreamError: The service ends the stream with an error.
        urllib3.exceptions.ProtocolError: A fault cut the connection.
    """

    def __init__(self, subscription: Subscription, aws: FakeAws) -> None:
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
            except AnswerLostError as error:
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
        """Give the subscription up."""
        self._subscription.close()


class ClientMeta:
    """What a boto3 client says about itself.

    Attributes:
        endpoint_url: A URL that nothing listens on.
        region_name: The region asked for.
        service_name: For example ``kinesis``.
    """

    def __init__(self, service: str, region: str) -> None:
        self.service_name = service
        self.region_name = region
        self.endpoint_url = f"memory://{service}.{region}"


class FakeClient:
    """A boto3-shaped client: ``client.put_records(StreamName=…, Records=[…])``. Thread-safe.

    Raises from its methods:
        botocore.exceptions.ClientError: The service answered with an error.
        botocore.exceptions.ReadTimeoutError: A fault swallowed the answer.
    """

    def __init__(self, aws: FakeAws, service: str, *, region: str) -> None:
        self._aws = aws
        self._service = service
        self._known = frozenset(aws.operations(service))
        self._blobs = frozenset({"Data"} if service == "kinesis" else {"B"})
        self.meta = ClientMeta(service, region)

    def __getattr__(self, method: str) -> Callable[..., dict[str, Any]]:
        operation = _operation(method)
        if method.startswith("_") or operation not in self._known:
            raise AttributeError(f"the fake {self._service} client has no method {method!r}")

        def call(**request: Any) -> dict[str, Any]:
            return self._call(operation, request)

        call.__name__ = method
        # Found by ordinary lookup from now on.
        self.__dict__[method] = call
        return call

    def close(self) -> None:
        """Nothing to close; boto3's clients have the method."""

    def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        request_id = str(uuid.uuid4())
        metadata = {
            "RequestId": request_id,
            "HTTPStatusCode": 200,
            # As the service's own clock says; consumers resolve LATEST to it.
            "HTTPHeaders": {
                "x-amzn-requestid": request_id,
                "date": _http_date(int(self._aws.clock.time())),
            },
            "RetryAttempts": 0,
        }
        try:
            answer = self._aws.call(self._service, operation, _to_wire(request, self._blobs))
        except AwsError as error:
            from botocore.exceptions import ClientError

            members = self._answer(operation, error.members)
            response: Any = {
                **members,
                "Error": {"Message": error.message, "Code": error.code},
                "message": error.message,
                "ResponseMetadata": {**metadata, "HTTPStatusCode": error.status},
            }
            raise ClientError(response, operation) from None
        except AnswerLostError as error:
            from botocore.exceptions import ReadTimeoutError

            raise ReadTimeoutError(endpoint_url=self.meta.endpoint_url, error=str(error)) from None
        return {**self._answer(operation, answer), "ResponseMetadata": metadata}

    def _answer(self, operation: str, answer: dict[str, Any] | bytes) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(answer) if isinstance(answer, bytes) else answer
        if operation == "GetRecords":
            return _with_records(body)
        if operation == "SubscribeToShard" and "EventStream" in body:
            return {"EventStream": FakeEventStream(body["EventStream"], self._aws)}
        if self._service == "dynamodb" and not _DESCRIPTIONS & body.keys():
            copied: dict[str, Any] = _from_attribute(body)
            return copied
        converted: dict[str, Any] = _from_wire(body)
        return converted
