"""Check whether a boto3 client runs only botocore's own code for its calls.

Users and tools change boto3 calls by event hooks (moto, botocore's `Stubber`, Sentry, adaptive retries, client-side
metrics) or by replacing methods (OpenTelemetry, `unittest.mock`). A call that does not go through boto3 would bypass them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from operator import is_
from types import FunctionType
from typing import Any

_PER_CALL = (
    "provide-client-params",
    "before-parameter-build",
    "before-call",
    "request-created",
    "choose-signer",
    "before-sign",
    "before-send",
    "before-parse",
    "response-received",
    "needs-retry",
    "after-call",
    "after-call-error",
)
"""Events that botocore emits for each call, under the name of the operation."""

_BEFORE_ENDPOINT = "before-endpoint-resolution"

_BOTOCORES_OWN = frozenset(
    {
        ("botocore.discovery", "block_endpoint_discovery_required_operations"),
        ("botocore.handlers", "_handle_request_validation_mode_member"),
        ("botocore.handlers", "_set_auth_scheme_preference_signer"),
        ("botocore.handlers", "add_query_compatibility_header"),
        ("botocore.handlers", "add_recursion_detection_header"),
        ("botocore.handlers", "add_retry_headers"),
        ("botocore.handlers", "generate_idempotent_uuid"),
        ("botocore.handlers", "inject_api_version_header_if_needed"),
        ("botocore.handlers", "set_operation_specific_signer"),
        ("botocore.retries.standard", "MaxAttemptsSeeder.seed_max_attempts"),
        ("botocore.retries.standard", "RetryHandler.needs_retry"),
        ("botocore.retries.standard", "RetryQuotaChecker.release_retry_quota"),
        ("botocore.retryhandler", "RetryHandler"),
        ("botocore.signers", "RequestSigner.handler"),
        ("botocore.useragent", "UserAgentString.rebuild_and_replace_user_agent_handler"),
    }
)
"""Handlers that every client has. A handler of a later botocore that is missing here counts as a user's handler: calls are then slower,
not wrong, and a test of the SDK fails."""

_OURS = frozenset({"kinesis_sdk.common.transport.calls", "kinesis_sdk.common.truncated_responses"})

_DEBUG_LOG = logging.getLogger("botocore.endpoint")


class HookCheck:
    """Checks whether calls of a client are unmodified. Thread-safe.

    botocore has no public way to list hooks, so this reads three private attributes of its event emitter. If these attributes do not
    exist, or the object is not a botocore client, no call counts as unmodified. ``methods`` maps the API operations to
    check, for example ``GetRecords``, to the methods that make them.
    """

    __slots__ = ("_client", "_emitter", "_events", "_names", "_result")

    def __init__(self, client: Any, methods: Mapping[str, str]) -> None:
        self._client = client
        self._names = ("_make_api_call", *methods.values())
        self._result: tuple[tuple[object, ...], bool] | None = None
        self._emitter: Any = None
        self._events: list[str] = []
        if methods and service_of(client):
            service = client.meta.service_model.service_id.hyphenize()
            self._events = [f"{event}.{service}.{operation}" for event in _PER_CALL for operation in methods]
            self._events.append(f"{_BEFORE_ENDPOINT}.{service}")
            events = client.meta.events
            emitter = getattr(events, "_emitter", events)
            if hasattr(emitter, "_lookup_cache") and hasattr(emitter, "_handlers"):
                self._emitter = emitter

    @property
    def unmodified(self) -> bool:
        """Whether the next call runs only botocore's own code. False while botocore logs at level DEBUG."""
        emitter = self._emitter
        if emitter is None or _DEBUG_LOG.isEnabledFor(logging.DEBUG):
            return False
        kind, own, names = type(self._client), vars(self._client), self._names
        # The emitter replaces its cache whenever a hook is added or removed. Holding the old cache keeps its identity unique.
        state = (
            emitter._lookup_cache,
            *[getattr(kind, name, None) for name in names],
            *[own.get(name) for name in names],
        )
        result = self._result
        if result is None or not all(map(is_, state, result[0])):
            # A hook that is added after the cache was read above replaces the cache, so the next call checks again.
            result = self._result = (state, self._check())
        return result[1]

    def _check(self) -> bool:
        kind, own = type(self._client), vars(self._client)
        if any(name in own or not _is_botocores(getattr(kind, name, None)) for name in self._names):
            return False
        search = self._emitter._handlers.prefix_search
        return all(_is_known(handler) for event in self._events for handler in search(event))


def service_of(client: Any) -> str | None:
    """Return the service of a botocore client that uses JSON; None for any other object."""
    from botocore.client import BaseClient

    # Not isinstance: a mock with a spec would pass.
    if not issubclass(type(client), BaseClient):
        return None
    model = client.meta.service_model
    # botocore 1.38 does not resolve protocols yet.
    protocol = getattr(model, "resolved_protocol", None) or model.metadata.get("protocol")
    return str(model.service_name) if protocol == "json" else None


def _is_botocores(function: Any) -> bool:
    # Not __module__: `functools.wraps` copies it to the wrapper.
    return isinstance(function, FunctionType) and str(function.__globals__.get("__name__")).startswith(
        "botocore."
    )


def _is_known(handler: Any) -> bool:
    name = getattr(handler, "__qualname__", None) or type(handler).__qualname__
    return handler.__module__ in _OURS or (handler.__module__, name) in _BOTOCORES_OWN
