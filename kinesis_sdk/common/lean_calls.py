"""GetRecords and GetShardIterator at about half of boto3's CPU time per call.

A reader of many shards makes these two calls all the time, and most responses have no records. boto3 spends 0.65 ms of CPU
on such a call, of which its HTTP session needs 0.2 ms: the rest is the resolution of the endpoint, the headers, their
canonical form for the signature, and events. Here, a call costs 0.3 ms (``make bench-calls``).

`LeanKinesis` has the methods of the boto3 client that it wraps. boto3 makes the first call of each kind; its request becomes
a template (`kinesis_sdk.common.request_template`). Further calls reuse the URL and the headers. botocore still validates
and serializes the parameters, supplies and refreshes the credentials, computes the signature, sends the request through
the client's own HTTP session (connections, TLS, proxies, timeouts), and parses the response.

Everything else is left to boto3 itself:

| case | what happens |
| --- | --- |
| the client is modified (see `kinesis_sdk.common.client_hooks`), or not boto3's | boto3 makes the call |
| the form of the request is not known, or its parameters are invalid | boto3 makes the call |
| an error response, a transport error, or a response that is truncated or lacks its member | see below |

In the last case boto3 makes the call too, but takes the response (or the exception) that is already there as the result of
its first attempt, by botocore's public event ``before-send``. It raises its usual exceptions and retries according to its
retry mode. No request is sent twice: a throttled call counts once at Kinesis.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from kinesis_sdk.common.client_hooks import HookCheck
from kinesis_sdk.common.fast_hooks import MARK
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.request_template import RequestTemplate

_LOGGER = FieldLogger(logging.getLogger(__name__))

_METHODS = {"GetRecords": "get_records", "GetShardIterator": "get_shard_iterator"}
_MEMBERS: dict[str, tuple[str, Any]] = {
    "GetRecords": ("Records", list),
    "GetShardIterator": ("ShardIterator", str),
}
"""Member that a complete response has, and its type."""

_MAX_FORMS = 1000
"""There is one for each stream that requests name by ARN. Beyond this, all are dropped."""

_HOOK = "kinesis-sdk-lean-call"


class LeanKinesis:
    """A boto3 Kinesis client whose GetRecords and GetShardIterator calls cost less CPU time. Thread-safe.

    Responses and exceptions are the same as those of the client. Its other methods and attributes are the client's own.

    Args:
        client: boto3 Kinesis client. For any other object, all calls are made by that object.
    """

    def __init__(self, client: Any) -> None:
        self.client: Any = unwrapped(client)
        self._hooks = HookCheck(self.client, tuple(_METHODS), tuple(_METHODS.values()))
        self._forms: dict[tuple[object, ...], _Form] = {}
        self._models: dict[str, Any] = {}
        if not self._hooks.unmodified:
            return
        from botocore.parsers import create_parser
        from botocore.serialize import create_serializer

        model = self.client.meta.service_model
        self._models = {operation: model.operation_model(operation) for operation in _METHODS}
        self._endpoint_members = {
            operation: tuple(parameter.member_name for parameter in model.context_parameters)
            for operation, model in self._models.items()
        }
        self._serializer: Any = create_serializer("json")
        self._parser: Any = create_parser("json")
        events = self.client.meta.events
        events.register("before-call.kinesis", _on_call, f"{_HOOK}-signer")
        events.register("before-send.kinesis", _on_send, f"{_HOOK}-request")
        events.register("needs-retry.kinesis", _on_response, f"{_HOOK}-endpoint")

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the client."""
        return getattr(object.__getattribute__(self, "client"), name)

    def get_records(self, *args: Any, **request: Any) -> Any:
        """GetRecords, with the parameters and the response of boto3."""
        return self._call("GetRecords", args, request)

    def get_shard_iterator(self, *args: Any, **request: Any) -> Any:
        """GetShardIterator, with the parameters and the response of boto3."""
        return self._call("GetShardIterator", args, request)

    def _call(self, operation: str, args: tuple[Any, ...], request: Mapping[str, Any]) -> Any:
        if args:  # boto3 rejects them
            return getattr(self.client, _METHODS[operation])(*args, **request)
        attempt = self.attempt(operation, request)
        if attempt.body is not None:
            parsed = attempt.parse(attempt.body)
            if parsed is not None:
                return parsed
        with attempt.by_boto3() as client:
            return getattr(client, _METHODS[operation])(**request)

    def attempt(self, operation: str, request: Mapping[str, Any]) -> Attempt:
        """Send a request if its form is known.

        Args:
            operation: ``GetRecords`` or ``GetShardIterator``.
            request: Parameters as for boto3.

        Returns:
            The attempt. If it has no ``body``, or the body cannot be parsed, boto3 has to make the call:
            see `Attempt.by_boto3`.

        Raises:
            BotoCoreError: If the credentials have expired and cannot be refreshed.
        """
        attempt = Attempt(self, operation, request)
        if not self._models or not self._hooks.unmodified:
            return attempt
        # What the endpoint depends on, and which parameters the template was checked with.
        key = (operation, *request, *[request.get(name) for name in self._endpoint_members[operation]])
        attempt.learns = key
        try:
            form = self._forms[key]
        except (KeyError, TypeError):  # an invalid parameter may not be hashable
            return attempt
        body = self._serialized(operation, request)
        if body is None:
            return attempt
        call_id = str(uuid.uuid4())
        signed = form.template.request(body, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), call_id)
        if signed is not None:
            attempt.endpoint = form.endpoint
            attempt.context = {
                **form.context,
                "retries": {**form.context["retries"], "invocation-id": call_id},
            }
            try:
                attempt.outcome = form.endpoint.http_session.send(signed)
            except Exception as error:  # noqa: BLE001 - boto3 takes it as the outcome of its first attempt
                attempt.outcome = error
            else:
                attempt.body = _whole_body(attempt.outcome)
        return attempt

    def _serialized(self, operation: str, request: Mapping[str, Any]) -> bytes | None:
        """Return the body of a request; None if a parameter is invalid, about which boto3 raises its own error."""
        from botocore.exceptions import ParamValidationError

        try:
            body: bytes = self._serializer.serialize_to_request(request, self._models[operation])["body"]
        except ParamValidationError:
            return None
        return body

    def _learn(self, attempt: Attempt) -> None:
        """Keep the form of the request that boto3 sent for an attempt."""
        if attempt.learns is None or attempt.request is None or attempt.endpoint is None:
            return
        if attempt.request.body != self._serialized(attempt.operation, attempt.parameters):
            return
        try:
            template = RequestTemplate.of(attempt.request, attempt.signer)
        except Exception as error:
            # The credentials may have to be refreshed just now.
            _LOGGER.debug("cannot learn the form of a %s call", attempt.operation, exc_info=error)
            return
        if template is None:
            return
        if len(self._forms) >= _MAX_FORMS:
            self._forms.clear()
        context = {key: value for key, value in attempt.context.items() if key not in _CONTEXT_OF_CALL}
        self._forms[attempt.learns] = _Form(template, attempt.endpoint, context)


class _Form(NamedTuple):
    """Common part of the calls of one kind.

    Attributes:
        template: Template of their requests.
        endpoint: botocore's endpoint, which has the HTTP session of the client.
        context: botocore's context of a call, from which the retry policy reads.
    """

    template: RequestTemplate
    endpoint: Any
    context: dict[str, Any]


_CONTEXT_OF_CALL = frozenset({MARK, "timestamp", "retry_quota_capacity"})
"""Entries of a context that belong to one call."""


class Attempt:
    """First attempt of a call, and what boto3 shows of the call if it has to make it.

    Attributes:
        operation: API operation.
        parameters: Parameters of the call.
        outcome: ``AWSResponse`` or the exception; None if nothing was sent.
        body: Body of a response with status 200 that is complete; None for every other outcome.
        learns: Key of the template to make from boto3's request; None if the client is modified.
        request: Request of boto3's first attempt, without retries; None before it was sent.
        signer: Signer of the client, if boto3 has made the call.
        endpoint: botocore's endpoint of the client, once a request was sent.
        context: botocore's context of the call.
    """

    __slots__ = (
        "_owner",
        "body",
        "context",
        "endpoint",
        "learns",
        "operation",
        "outcome",
        "parameters",
        "request",
        "signer",
    )

    def __init__(self, owner: LeanKinesis, operation: str, parameters: Mapping[str, Any]) -> None:
        self._owner = owner
        self.operation: str = operation
        self.parameters: Mapping[str, Any] = parameters
        self.outcome: Any = None
        self.body: bytes | None = None
        self.learns: tuple[object, ...] | None = None
        self.request: Any = None
        self.signer: Any = None
        self.endpoint: Any = None
        self.context: dict[str, Any] = {}

    def parse(self, body: bytes) -> dict[str, Any] | None:
        """Return the response as boto3 returns it.

        Args:
            body: Body to parse: that of the response, or one without the records.

        Returns:
            None if botocore cannot parse it, its main member is missing, or the retry policy rejects it.
        """
        model, response = self._owner._models[self.operation], self.outcome
        document = {
            "headers": response.headers,
            "status_code": response.status_code,
            "body": body,
            "context": {"operation_name": self.operation},
        }
        try:
            parsed: Any = self._owner._parser.parse(document, model.output_shape)
        except Exception:  # noqa: BLE001 - boto3 parses the same response and raises the same error
            return None
        name, kind = _MEMBERS[self.operation]
        if not isinstance(parsed, dict) or not isinstance(parsed.get(name), kind):
            return None
        # The retry policy of the client adds to the metadata, and counts successful calls.
        emit = self._owner.client.meta.events.emit
        results = emit(
            f"needs-retry.kinesis.{self.operation}",
            response=(response, parsed),
            endpoint=self.endpoint,
            operation=model,
            attempts=1,
            caught_exception=None,
            request_dict={"context": self.context},
        )
        if any(delay is not None for _, delay in results):
            return None
        parsed["ResponseMetadata"]["RetryAttempts"] = 0
        emit(
            f"after-call.kinesis.{self.operation}",
            http_response=response,
            parsed=parsed,
            model=model,
            context=self.context,
        )
        return parsed

    @contextmanager
    def by_boto3(self) -> Iterator[Any]:
        """Make the call with boto3: the block makes it with the client that it gets.

        boto3 takes the outcome of this attempt, if there is one, as that of its own first attempt.
        """
        if self.learns is None:
            yield self._owner.client
            return
        token = _attempt.set(self)
        try:
            yield self._owner.client
        finally:
            _attempt.reset(token)
            self._owner._learn(self)


def unwrapped(client: Any) -> Any:
    """Return the client of a `LeanKinesis`; any other object as it is."""
    return client.client if isinstance(client, LeanKinesis) else client


def document_of(body: bytes) -> dict[str, Any] | None:
    """Return a body as a JSON object; None if it is not one."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _whole_body(response: Any) -> bytes | None:
    """Return the body of a response with status 200; None for others, and if it is shorter than declared."""
    if response.status_code != 200:
        return None
    body: bytes = response.content
    declared = str(response.headers.get("content-length") or "").strip()
    return None if declared.isdecimal() and len(body) < int(declared) else body


_attempt: ContextVar[Attempt | None] = ContextVar("kinesis_sdk_attempt", default=None)
"""Attempt whose call boto3 is making on this thread (or greenlet), because ``before-send`` gets no context of the call."""


def _on_call(model: Any, request_signer: Any, context: dict[str, Any], **_: Any) -> None:
    """Handle ``before-call``: remember the signer and the context."""
    attempt = _attempt.get()
    if attempt is not None and model.name == attempt.operation:
        attempt.signer = request_signer
        attempt.context = context


def _on_send(request: Any, **_: Any) -> Any:
    """Handle ``before-send``: return the response that is already there, or raise the exception.

    Only for the first attempt of boto3; its retries are sent.
    """
    attempt = _attempt.get()
    if attempt is None or attempt.request is not None:
        return None
    attempt.request = request
    if isinstance(attempt.outcome, Exception):
        raise attempt.outcome
    return attempt.outcome


def _on_response(endpoint: Any, **_: Any) -> None:
    """Handle ``needs-retry``: remember the endpoint."""
    attempt = _attempt.get()
    if attempt is not None:
        attempt.endpoint = endpoint
