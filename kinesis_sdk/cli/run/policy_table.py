"""The table ``[on_handler_error]`` of a TOML file: a policy for failing handlers."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from kinesis_sdk.cli.run.handlers import HandlerNotFoundError, load_handler, split_name
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.consumer import BisectBatch, HandlerErrorPolicy, PoisonRecord, RetryBatch, StopWorker

_FIELD = "on_handler_error"
_POLICIES: Mapping[str, Callable[..., HandlerErrorPolicy]] = {
    "retry": RetryBatch,
    "bisect": BisectBatch,
    "stop": StopWorker,
}


def policy_from(values: Mapping[str, Any], *, loads: bool) -> HandlerErrorPolicy:
    """Return the policy that a table describes: ``policy`` is ``retry``, ``bisect`` or ``stop``, the other keys are its fields.

    ``loads`` imports the functions that it names; otherwise the policy has stand-ins, which cannot be called.

    Raises:
        ConfigError: If a name or value is not valid; the message names it.
    """
    given = dict(values)
    word = given.pop("policy", None)
    make = _POLICIES.get(word) if isinstance(word, str) else None
    if make is None:
        raise ConfigError(f"{_FIELD}.policy", word, "one of " + ", ".join(_POLICIES))
    known = {one.name for one in fields(make)}  # type: ignore[arg-type]  # each is a dataclass
    for name in given:
        if name not in known:
            accepted = ", ".join(["policy", *sorted(known)])
            raise ConfigError(
                f"{_FIELD}.{name}",
                None,
                accepted,
                problem=f"{_FIELD}.{name} is invalid: expected one of {accepted}",
            )
    if make is BisectBatch or "dead_letter" in given:
        given["dead_letter"] = _function(given.get("dead_letter"), loads=loads)
    if make is BisectBatch:
        given["retry_only"] = _classes(given.get("retry_only", []), loads=loads)
    return make(**given)


def _function(value: object, *, loads: bool) -> Any:
    place, accepted = f"{_FIELD}.dead_letter", "module:function, such as billing:set_aside"
    if not isinstance(value, str):
        raise ConfigError(place, value, accepted)
    return _loaded(place, value, accepted) if loads else _checked(place, value, accepted, _stand_in)


def _classes(value: object, *, loads: bool) -> tuple[type[Exception], ...]:
    place, accepted = f"{_FIELD}.retry_only", "a list of exception classes, built-in ones or as module:class"
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ConfigError(place, value, accepted)
    found: list[type[Exception]] = []
    for name in value:
        if ":" in name:
            kind = _loaded(place, name, accepted) if loads else _checked(place, name, accepted, Exception)
        else:
            kind = getattr(builtins, name, None)
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            raise ConfigError(place, name, accepted)
        found.append(kind)
    return tuple(found)


def _checked(place: str, name: str, accepted: str, stand_in: Any) -> Any:
    try:
        split_name(name)
    except HandlerNotFoundError:
        raise ConfigError(place, name, accepted) from None
    return stand_in


def _loaded(place: str, name: str, accepted: str) -> Any:
    _checked(place, name, accepted, None)
    try:
        return load_handler(name)
    except HandlerNotFoundError as error:
        raise ConfigError(place, name, accepted, problem=f"{place}={name!r}: {error}") from error


def _stand_in(poison: PoisonRecord) -> None:  # noqa: ARG001
    """Replace a function that only worker processes import."""
    raise AssertionError("only worker processes call it, and they import the function itself")
