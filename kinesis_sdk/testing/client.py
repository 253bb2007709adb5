"""A client in the shape of boto3's, straight into the fake account: no sockets, no signing, no retries.

Answers have the types that boto3 gives them (bytes, aware datetimes), errors are botocore's own classes, so code under
test cannot tell the difference unless it asks for boto3's extras (waiters, paginators, event hooks).
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from kinesis_sdk.testing.errors import AnswerLostError, AwsError

if TYPE_CHECKING:
    from kinesis_sdk.testing.aws import FakeAws

_TIMESTAMPS = frozenset(
    {
        "ApproximateArrivalTimestamp",
        "ConsumerCreationTimestamp",
        "CreationDateTime",
        "StreamCreationTimestamp",
        "Timestamp",
    }
)


def _operation(method: str) -> str:
    return "".join(part.capitalize() for part in method.split("_"))


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
        from botocore.exceptions import ClientError, ReadTimeoutError

        blobs = frozenset({"Data"} if self._service == "kinesis" else {"B"})
        request_id = str(uuid.uuid4())
        metadata = {
            "RequestId": request_id,
            "HTTPStatusCode": 200,
            # As the service's own clock says; consumers resolve LATEST to it.
            "HTTPHeaders": {
                "x-amzn-requestid": request_id,
                "date": formatdate(self._aws.clock.time(), usegmt=True),
            },
            "RetryAttempts": 0,
        }
        try:
            answer = self._aws.call(self._service, operation, _to_wire(request, blobs))
        except AwsError as error:
            members = self._answer(operation, error.members)
            response: dict[str, Any] = {
                **members,
                "Error": {"Message": error.message, "Code": error.code},
                "message": error.message,
                "ResponseMetadata": {**metadata, "HTTPStatusCode": error.status},
            }
            raise ClientError(response, operation) from None
        except AnswerLostError as error:
            raise ReadTimeoutError(endpoint_url=self.meta.endpoint_url, error=str(error)) from None
        return {**self._answer(operation, answer), "ResponseMetadata": metadata}

    def _answer(self, operation: str, answer: dict[str, Any] | bytes) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(answer) if isinstance(answer, bytes) else answer
        if operation == "GetRecords":
            for record in body.get("Records", ()):
                record["Data"] = base64.b64decode(record["Data"])
                record["ApproximateArrivalTimestamp"] = datetime.fromtimestamp(
                    record["ApproximateArrivalTimestamp"], tz=timezone.utc
                )
            return body
        if self._service == "dynamodb" and not _DESCRIPTIONS & body.keys():
            copied: dict[str, Any] = _from_attribute(body)
            return copied
        converted: dict[str, Any] = _from_wire(body)
        return converted
