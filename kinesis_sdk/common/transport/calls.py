"""`Transport`: makes calls of a boto3 client from the forms of earlier calls. The package explains how."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.transport import cbor
from kinesis_sdk.common.transport.connection import Connections, Response
from kinesis_sdk.common.transport.form import RequestForm
from kinesis_sdk.common.transport.hooks import HookCheck, service_of

_LOGGER = FieldLogger(logging.getLogger(__name__))

_METHODS: dict[str | None, dict[str, str]] = {
    "kinesis": {
        "PutRecords": "put_records",
        "GetRecords": "get_records",
        "GetShardIterator": "get_shard_iterator",
    },
    "dynamodb": {"UpdateItem": "update_item"},
}
_MEMBERS: dict[str, tuple[str, type]] = {
    "PutRecords": ("Records", list),
    "GetRecords": ("Records", list),
    "GetShardIterator": ("ShardIterator", str),
}
"""A member that every complete response has, and its type."""

_UPDATE = frozenset(
    {
        "TableName",
        "Key",
        "UpdateExpression",
        "ConditionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
        "ReturnValues",
        "ReturnValuesOnConditionCheckFailure",
    }
)
"""Members of an UpdateItem request that `_is_plain_update` accepts."""

_MAPS = frozenset({"Key", "ExpressionAttributeNames", "ExpressionAttributeValues"})

_MAX_FORMS = 1000
"""Maximum number of forms, beyond which all forms are dropped: each stream that requests name by its ARN has forms of its own."""

_HOOK = "kinesis-sdk-transport"


class Transport:
    """A boto3 client for Kinesis or DynamoDB whose hot calls cost less CPU time. Thread-safe.

    `put_records` and `get_records` of this package use it, and its own methods make the other hot calls. A transport returns the same
    responses and raises the same exceptions as the client, and all other methods and attributes are the client's own.

    Args:
        client: boto3 client. An object that is not a boto3 client makes all calls itself.
        speaks_cbor: Whether PutRecords and GetRecords may use CBOR where it costs less than JSON.
    """

    def __init__(self, client: Any, *, speaks_cbor: bool = False) -> None:
        self.client: Any = client.client if isinstance(client, Transport) else client
        service = service_of(self.client)
        methods = _METHODS.get(service, {})
        self.speaks_cbor: bool = speaks_cbor and service == "kinesis"
        self.large_records: dict[str | None, bool] = {}  # by the stream's ARN, as last read
        self._was_understood = True
        self._hooks = HookCheck(self.client, methods)
        self._forms: dict[tuple[object, ...], _Form] = {}
        self._models: dict[str, Any] = {}
        if not methods or not self._hooks.unmodified:
            return
        from botocore.parsers import create_parser
        from botocore.serialize import create_serializer

        model = self.client.meta.service_model
        self._models = {operation: model.operation_model(operation) for operation in methods}
        self._endpoint_members = {
            operation: tuple(parameter.member_name for parameter in model.context_parameters)
            for operation, model in self._models.items()
        }
        self._service = model.service_id.hyphenize()
        self._serializer: Any = create_serializer("json")
        self._parser: Any = create_parser("json")
        events = self.client.meta.events
        events.register(f"before-call.{self._service}", _on_call, f"{_HOOK}-signer")
        events.register(f"before-send.{self._service}", _on_send, f"{_HOOK}-request")
        events.register(f"needs-retry.{self._service}", _on_response, f"{_HOOK}-response")
        # Last, so that all other handlers see the whole body: botocore calls the handlers of the shortest name last.
        events.register_last("before-parse", _on_parse, f"{_HOOK}-body")

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the client."""
        return getattr(object.__getattribute__(self, "client"), name)

    def get_shard_iterator(self, *args: Any, **request: Any) -> Any:
        """GetShardIterator, with the parameters and the response of boto3."""
        return self._call("GetShardIterator", "get_shard_iterator", args, request)

    def update_item(self, *args: Any, **request: Any) -> Any:
        """UpdateItem, with the parameters and the response of boto3."""
        return self._call("UpdateItem", "update_item", args, request)

    def _call(self, operation: str, method: str, args: tuple[Any, ...], request: Mapping[str, Any]) -> Any:
        if args:  # boto3 rejects them
            return getattr(self.client, method)(*args, **request)
        attempt = self.attempt(operation, request, self.serialized(operation, request))
        if attempt.body is not None:
            parsed = attempt.parse(attempt.body)
            if parsed is not None:
                return parsed
        with attempt.by_boto3() as client:
            return getattr(client, method)(**request)

    def attempt(
        self, operation: str, request: Mapping[str, Any], body: bytes | None, *, in_cbor: bool = False
    ) -> Attempt:
        """Send a request if its form exists.

        Args:
            operation: API operation.
            request: Parameters as for boto3; long lists may be left out.
            body: The same parameters in JSON or CBOR; with None, boto3 makes the call.
            in_cbor: Whether ``body`` is CBOR.

        Returns:
            The attempt. If the attempt has no ``body``, or the body cannot be parsed, boto3 has to make the call:
            see `Attempt.by_boto3`.

        Raises:
            BotoCoreError: If the credentials have expired and cannot be refreshed.
        """
        attempt = Attempt(self, operation)
        if body is None or not self._models or not self._hooks.unmodified:
            return attempt
        # The endpoint depends on some parameters, and the form was checked only for requests with these parameters.
        key = (operation, *request, *[request.get(name) for name in self._endpoint_members[operation]])
        try:
            form = self._forms.get(key)
        except TypeError:  # an invalid parameter may be unhashable
            return attempt
        attempt.learns, attempt.sent, attempt.sent_cbor = key, body, in_cbor
        if form is None:
            return attempt
        call_id = str(uuid.uuid4())
        template = form.in_cbor if in_cbor else form.request
        signed = template.request(body, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), call_id)
        if signed is not None:
            attempt.endpoint = form.connections.endpoint
            attempt.context = {
                **form.context,
                "retries": {**form.context["retries"], "invocation-id": call_id},
            }
            try:
                attempt.outcome = form.connections.send(signed)
            except Exception as error:  # noqa: BLE001 - boto3 takes it as the outcome of its first attempt
                attempt.outcome = error
            else:
                attempt.body = _whole_body(attempt.outcome)
                if in_cbor:
                    attempt.is_cbor = self._answers_in_cbor(attempt.outcome)
        return attempt

    def _answers_in_cbor(self, response: Any) -> bool:
        """Return whether a response is CBOR; it may be JSON or text if a proxy wrote it, or if the service does not support CBOR."""
        kind = str(response.headers.get("content-type") or "")
        if kind.partition(";")[0].strip().lower() == cbor.CONTENT_TYPE:
            return True
        if response.status_code >= 400 and self._was_understood:
            self._was_understood = False
            _LOGGER.warning(
                "a request in CBOR failed with status %d and a response of type %r: if all calls fail, the endpoint accepts only JSON, "
                'so set wire_format="json"',
                response.status_code,
                kind[:100],
            )
        return False

    def serialized(self, operation: str, request: Mapping[str, Any]) -> bytes | None:
        """Return the body of a request as botocore writes it; None if boto3 must make the call, or rejects a parameter."""
        if operation not in self._models:
            return None
        if _is_plain_update(request):
            return json.dumps(request).encode()
        from botocore.exceptions import ParamValidationError

        try:
            body: bytes = self._serializer.serialize_to_request(request, self._models[operation])["body"]
        except ParamValidationError:
            return None
        return body

    def learn(self, attempt: Attempt) -> None:
        """Keep the form of boto3's request for an attempt."""
        request = attempt.request
        if attempt.learns is None or request is None or attempt.endpoint is None:
            return
        try:
            if request.body != attempt.sent and json.loads(request.body) != attempt.said():
                return
            form = RequestForm.of(request, attempt.signer)
        except Exception as error:
            # The credentials may be due for a refresh right now.
            _LOGGER.debug("cannot learn the form of a %s call", attempt.operation, exc_info=error)
            return
        if form is None:
            return
        context = {key: value for key, value in attempt.context.items() if key not in _CONTEXT_OF_CALL}
        known = self._forms.get(attempt.learns)
        connections = known.connections if known is not None else Connections(attempt.endpoint)
        connections.learn(attempt.response)
        if len(self._forms) >= _MAX_FORMS:
            self._forms.clear()
        in_cbor = form.of_type(cbor.CONTENT_TYPE) if self.speaks_cbor else form
        self._forms[attempt.learns] = _Form(form, in_cbor, connections, context)


class _Form(NamedTuple):
    """Common part of the calls of one kind; ``context`` is botocore's context, which the retry policy reads."""

    request: RequestForm
    in_cbor: RequestForm
    connections: Connections
    context: dict[str, Any]


_CONTEXT_OF_CALL = frozenset({"timestamp", "retry_quota_capacity"})
"""Entries of a context that belong to one call."""


class Attempt:
    """First attempt of a call, and the parts of boto3's own call if boto3 has to make it.

    Attributes:
        operation: API operation.
        outcome: Response or exception; None if nothing was sent.
        body: Body of a complete response with status 200; None for every other outcome.
        learns: Key of the form to make from boto3's request; None if no form is to be made.
        sent: Body that was sent, or would have been sent.
        sent_cbor: Whether ``sent`` is CBOR.
        is_cbor: Whether the response is CBOR.
        request: Request of boto3's first attempt, without retries; None before it was sent.
        response: boto3's last response.
        signer: Signer of the client, if boto3 has made the call.
        endpoint: botocore's endpoint of the client, once a request was sent.
        context: botocore's context of the call.
        shorten: Called with the body of each successful response that boto3 reads itself; returns the body for botocore's parser.
    """

    __slots__ = (
        "_owner",
        "body",
        "context",
        "endpoint",
        "is_cbor",
        "learns",
        "operation",
        "outcome",
        "request",
        "response",
        "sent",
        "sent_cbor",
        "shorten",
        "signer",
    )

    def __init__(self, owner: Transport, operation: str) -> None:
        self._owner = owner
        self.operation: str = operation
        self.outcome: Any = None
        self.body: bytes | None = None
        self.learns: tuple[object, ...] | None = None
        self.sent: bytes = b""
        self.sent_cbor: bool = False
        self.is_cbor: bool = False
        self.request: Any = None
        self.response: Any = None
        self.signer: Any = None
        self.endpoint: Any = None
        self.context: dict[str, Any] = {}
        self.shorten: Callable[[bytes], bytes] | None = None

    def parse(self, body: bytes) -> dict[str, Any] | None:
        """Return the response in boto3's form, from its body or from its body without the records.

        None if botocore cannot parse it, its main member is missing, or the retry policy rejects it.
        """
        response, model = self.outcome, self._owner._models[self.operation]
        if body == b"{}" and self.operation not in _MEMBERS:  # UpdateItem without the row
            empty = {"ResponseMetadata": self.metadata()}
            return empty if self.accepts(empty) else None
        document = {
            "headers": response.headers,
            "status_code": response.status_code,
            "body": body,
            "context": {"operation_name": self.operation},
        }
        try:
            json.loads(body)  # botocore treats a body that is not JSON as one without members
            parsed: Any = self._owner._parser.parse(document, model.output_shape)
        except Exception:  # noqa: BLE001 - boto3 parses the same response and raises the same error
            return None
        name, kind = _MEMBERS.get(self.operation, ("ResponseMetadata", dict))
        if not isinstance(parsed, dict) or not isinstance(parsed.get(name), kind):
            return None
        return parsed if self.accepts(parsed) else None

    def document(self) -> dict[str, Any] | None:
        """Return the content of the body if it is an object that has its main member; None otherwise."""
        if self.body is None:
            return None
        try:
            document = cbor.document(self.body) if self.is_cbor else json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        name, kind = _MEMBERS[self.operation]
        found = isinstance(document, dict) and isinstance(document.get(name), kind)
        return document if found else None

    def said(self) -> Any:
        """Return the content of the request as if parsed from JSON. Raises ValueError if it cannot be read."""
        return cbor.document(self.sent) if self.sent_cbor else json.loads(self.sent)

    def metadata(self) -> dict[str, Any]:
        """Return ``ResponseMetadata`` for a response that bypasses botocore's parser."""
        headers = {name.lower(): value for name, value in self.outcome.headers.items()}
        result = {"HTTPStatusCode": self.outcome.status_code, "HTTPHeaders": headers}
        if "x-amzn-requestid" in headers:
            result = {"RequestId": headers["x-amzn-requestid"], **result}
        return result

    def accepts(self, parsed: dict[str, Any]) -> bool:
        """Return whether the client's retry policy accepts a response. The policy may add to the metadata, and counts successes."""
        owner, response = self._owner, self.outcome
        model = owner._models[self.operation]
        emit = owner.client.meta.events.emit
        results = emit(
            f"needs-retry.{owner._service}.{self.operation}",
            response=(response, parsed),
            endpoint=self.endpoint,
            operation=model,
            attempts=1,
            caught_exception=None,
            request_dict={"context": self.context},
        )
        if any(delay is not None for _, delay in results):
            return False
        parsed["ResponseMetadata"]["RetryAttempts"] = 0
        emit(
            f"after-call.{owner._service}.{self.operation}",
            http_response=response,
            parsed=parsed,
            model=model,
            context=self.context,
        )
        return True

    @contextmanager
    def by_boto3(self) -> Iterator[Any]:
        """Yield the client for boto3's own call.

        boto3 takes the outcome of this attempt, if there is one, as the outcome of its own first attempt.
        """
        if self.learns is None:
            yield self._owner.client
            return
        if self.is_cbor:
            self.outcome = _in_json(self.outcome)
        token = _attempt.set(self)
        try:
            yield self._owner.client
        finally:
            _attempt.reset(token)
            self._owner.learn(self)


def _is_plain_update(request: Mapping[str, Any]) -> bool:
    """Return whether botocore writes a request as `json.dumps` does: an UpdateItem request whose values are text and numbers.

    botocore compares every member with the service model, which takes as long as the rest of the call.
    """
    if not _UPDATE >= request.keys() >= {"TableName", "Key"}:
        return False
    for name, member in request.items():
        if type(member) is str:
            plain = bool(member) and name not in _MAPS
        elif type(member) is not dict or name not in _MAPS:
            return False
        elif name == "ExpressionAttributeNames":
            plain = all(type(key) is type(value) is str for key, value in member.items())
        else:
            plain = all(type(key) is str and _is_plain_value(value) for key, value in member.items())
        if not plain:
            return False
    return True


def _is_plain_value(value: Any) -> bool:
    if type(value) is not dict or len(value) != 1:
        return False
    ((kind, content),) = value.items()
    return kind in {"S", "N"} and type(content) is str


def _whole_body(response: Any) -> bytes | None:
    """Return the body of a complete response with status 200; otherwise None."""
    if response.status_code != 200:
        return None
    body: bytes = response.content
    declared = str(response.headers.get("content-length") or "").strip()
    return None if declared.isdecimal() and len(body) < int(declared) else body


def _in_json(response: Any) -> Response:
    """Return a CBOR response as JSON, for botocore's parser; without a body if it cannot be read."""
    try:
        body = json.dumps(cbor.document(response.content)).encode("ascii")
    except ValueError:
        body = b""
    headers = {name.lower(): value for name, value in response.headers.items()}
    headers.update({"content-type": "application/x-amz-json-1.1", "content-length": str(len(body))})
    return Response(response.url, response.status_code, headers, body)


_attempt: ContextVar[Attempt | None] = ContextVar("kinesis_sdk_attempt", default=None)
"""Attempt whose call boto3 is making on this thread (or greenlet); ``before-send`` gets no context of the call."""


_send: ContextVar[Callable[[Any], Any] | None] = ContextVar("kinesis_sdk_send", default=None)


@contextmanager
def sending(send: Callable[[Any], Any]) -> Iterator[None]:
    """Send the requests of boto3's calls on this thread in another way, while the context lasts.

    Only unmodified clients that a `Transport` wraps call ``send``.

    Args:
        send: Called with botocore's ``AWSPreparedRequest`` of each attempt. Returns an ``AWSResponse``, or None to let boto3 send it;
            an exception is the outcome of the attempt.
    """
    token = _send.set(send)
    try:
        yield
    finally:
        _send.reset(token)


def _on_call(model: Any, request_signer: Any, context: dict[str, Any], **_: Any) -> None:
    """Handle ``before-call``: remember the signer and the context."""
    attempt = _attempt.get()
    if attempt is not None and model.name == attempt.operation:
        attempt.signer = request_signer
        attempt.context = context


def _on_send(request: Any, **_: Any) -> Any:
    """Handle ``before-send``: let `sending` send the request; in boto3's first attempt, return or raise the existing outcome."""
    send = _send.get()
    if send is not None:
        return send(request)
    attempt = _attempt.get()
    if attempt is None or attempt.request is not None:
        return None
    attempt.request = request
    if isinstance(attempt.outcome, Exception):
        raise attempt.outcome
    return attempt.outcome


def _on_parse(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    """Handle ``before-parse``: shorten the body to the part that botocore has to parse."""
    attempt = _attempt.get()
    if (
        attempt is not None
        and attempt.shorten is not None
        and operation_model.name == attempt.operation
        and response_dict["status_code"] == 200
    ):
        response_dict["body"] = attempt.shorten(response_dict["body"])


def _on_response(endpoint: Any, response: Any, **_: Any) -> None:
    """Handle ``needs-retry``: remember the endpoint and the response."""
    attempt = _attempt.get()
    if attempt is not None:
        attempt.endpoint = endpoint
        attempt.response = response[0] if response else None
