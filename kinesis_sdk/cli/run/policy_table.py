"""The table ``[on_handler_error]`` of a TOML file: a policy for failing handlers."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any, cast

from kinesis_sdk.admin import Connection
from kinesis_sdk.cli.run.handlers import HandlerNotFoundError, load_handler, split_name
from kinesis_sdk.common.errors import ConfigError, without_userinfo
from kinesis_sdk.common.validation import check_bool
from kinesis_sdk.consumer import (
    BisectBatch,
    CircuitBreaker,
    HandlerErrorPolicy,
    PoisonRecord,
    RetryBatch,
    StopWorker,
    StreamSpec,
)
from kinesis_sdk.dead_letters import DeadLetters, open_dead_letters
from kinesis_sdk.dead_letters.location import check_location
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.retries import RetryTable, RetryTiers, StreamTiers, TierStore

_FIELD = "on_handler_error"
_POLICIES: Mapping[str, Callable[..., HandlerErrorPolicy]] = {
    "retry": RetryBatch,
    "bisect": BisectBatch,
    "tiers": RetryTiers,
    "stop": StopWorker,
}
_BREAKER = "circuit_breaker"
_DATABASES = "the URL of a database: 'sqlite:///billing.db' or 'postgresql+psycopg://user@host/database'"
_NAMESPACE = "kinesis_sdk retries"
"""Namespace for the identities of copies in tiers."""


@dataclass(kw_only=True)
class PolicyPlace:
    """Known facts about the worker of a policy; commands that run no worker have no such facts.

    Attributes:
        application: Name of the application, which dead letters contain.
        stream: Name or ARN of its stream, after which the tiers are named; None if it is unknown, or if there are several.
        connection: Region, profile and endpoint for copies in tiers.
        stores: The tiers in streams of the policies that were read.
        tables: The retry tables of the policies that were loaded.
    """

    application: str = ""
    stream: str | None = None
    connection: Connection | None = None
    stores: list[StreamTiers] = field(default_factory=list)
    tables: list[RetryTable] = field(default_factory=list)
    _producer: Producer | None = None

    def table(self, database: Any, keep_order: Any, *, loads: bool) -> TierStore:
        """Return a retry table; without ``loads``, a stand-in that opens no database."""
        name = f"{_FIELD}.database"
        if not isinstance(database, str) or "://" not in database:
            shown = without_userinfo(database)[:200] if isinstance(database, str) else database
            raise ConfigError(name, shown, _DATABASES)
        check_bool(f"{_FIELD}.keep_order", keep_order)
        if not loads:
            stand_in: Any = SimpleNamespace(begin=tuple)
            return cast("TierStore", stand_in)
        try:
            made = RetryTable(database, application_name=self.application, keep_order=keep_order)
        except ConfigError as error:
            if error.field != "database":
                raise
            raise ConfigError(name, error.value, error.accepted) from error
        self.tables.append(made)
        return made

    def tiers(self, names: Any, *, loads: bool) -> StreamTiers:
        """Return new tiers in streams; without ``loads``, they cannot keep a record."""
        if names is not None and not (
            isinstance(names, list) and all(isinstance(name, str) for name in names)
        ):
            raise ConfigError(f"{_FIELD}.streams", names, "a list of names or ARNs of streams")
        if self.stream is None and names is None and self.connection is not None:
            raise ConfigError(
                f"{_FIELD}.streams",
                None,
                "the streams of the tiers, because the worker does not read one stream",
            )
        producer: Any = SimpleNamespace(config=None)
        if loads:
            if self._producer is None:
                config = ProducerConfig(idempotent=True, dedup_namespace=_NAMESPACE)
                assert self.connection is not None
                self._producer = Producer(config, client=self.connection.kinesis)
            producer = self._producer
        made = StreamTiers(producer, self.stream or "stream", names=names)
        self.stores.append(made)
        return made

    def close(self) -> None:
        """Close the producer of copies, and the connections of tables."""
        if self._producer is not None:
            self._producer.close()
        for table in self.tables:
            table.close()


def policy_from(
    values: Mapping[str, Any], *, loads: bool, place: PolicyPlace | None = None
) -> HandlerErrorPolicy:
    """Return the policy that a table describes: ``policy`` is one of `_POLICIES`, and the other keys are its fields.

    ``dead_letters`` may be a location of dead letters instead of the function ``dead_letter``. The table ``circuit_breaker`` puts a
    `CircuitBreaker` in front. The tiers of ``tiers`` are streams (given in ``streams``, or named after the stream) or a table in
    ``database``.

    ``loads`` imports the functions that the table names; otherwise the policy has stand-ins, which cannot be called.

    Raises:
        ConfigError: If a name or value is not valid; the message names it.
    """
    given, place = dict(values), place or PolicyPlace()
    word = given.pop("policy", None)
    make = _POLICIES.get(word) if isinstance(word, str) else None
    if make is None:
        raise ConfigError(f"{_FIELD}.policy", word, "one of " + ", ".join(_POLICIES))
    breaker = given.pop(_BREAKER, None)
    known = _names_of(make)
    _check_names(_FIELD, given, ["policy", *known, _BREAKER])
    if "dead_letter" in known and (
        make in (BisectBatch, RetryTiers) or {"dead_letter", "dead_letters"} & {*given}
    ):
        given["dead_letter"] = _hook(given, place, loads=loads)
    if "retry_only" in known:
        given["retry_only"] = _classes("retry_only", given.get("retry_only", []), loads=loads)
    if make is RetryTiers:
        delays = given.get("delays")
        if not isinstance(delays, list):
            raise ConfigError(f"{_FIELD}.delays", delays, "a list of seconds, such as [60, 600, 3600]")
        given["to"] = _tier_store(given, place, loads=loads)
    policy = make(**given)
    return policy if breaker is None else _breaker(policy, breaker, loads=loads)


def retry_tiers(policy: object) -> RetryTiers | None:
    """Return the retry tiers of a policy, even within a circuit breaker; None if it has none."""
    inner = policy.policy if isinstance(policy, CircuitBreaker) else policy
    return inner if isinstance(inner, RetryTiers) else None


def tiers_of(policy: object) -> list[StreamSpec]:
    """Return the streams of a policy's tiers, each with its delay.

    Raises:
        ConfigError: If the policy has no tiers in streams.
    """
    tiers = retry_tiers(policy)
    if tiers is None:
        raise ConfigError(
            f"{_FIELD}.policy", None, "tiers", problem='--tiers needs a file with policy = "tiers"'
        )
    if not isinstance(tiers.to, StreamTiers):
        raise ConfigError(
            f"{_FIELD}.database",
            None,
            "tiers in streams",
            problem="--tiers is for tiers in streams: records in a database are delivered by the command without it",
        )
    return tiers.streams()


def _tier_store(given: dict[str, Any], place: PolicyPlace, *, loads: bool) -> TierStore:
    """Return the store in which records wait, and remove its names from ``given``."""
    streams, database = given.pop("streams", None), given.pop("database", None)
    keep_order = given.pop("keep_order", None)
    if database is None:
        if keep_order is not None:
            raise ConfigError(
                f"{_FIELD}.keep_order",
                keep_order,
                "not given without database, because tiers in streams do not keep the order of keys",
            )
        return place.tiers(streams, loads=loads)
    if streams is not None:
        raise ConfigError(f"{_FIELD}.streams", streams, "nothing beside database")
    return place.table(database, False if keep_order is None else keep_order, loads=loads)


def _names_of(make: Callable[..., HandlerErrorPolicy]) -> list[str]:
    """Return the names that a table of a policy may have, in order."""
    names = [name for name in inspect.signature(make).parameters if name != "to"]
    if "dead_letter" in names:
        names.append("dead_letters")
    return [*names, "streams", "database", "keep_order"] if make is RetryTiers else names


def _check_names(place: str, given: Mapping[str, Any], known: list[str]) -> None:
    for name in given:
        if name not in known:
            accepted = ", ".join(known)
            raise ConfigError(
                f"{place}.{name}",
                None,
                accepted,
                problem=f"{place}.{name} is invalid: expected one of {accepted}",
            )


def _breaker(policy: HandlerErrorPolicy, values: object, *, loads: bool) -> HandlerErrorPolicy:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{_FIELD}.{_BREAKER}", values, f"a table, [{_FIELD}.{_BREAKER}]")
    given = dict(values)
    known = [one.name for one in fields(CircuitBreaker) if one.init and one.name != "policy"]
    _check_names(f"{_FIELD}.{_BREAKER}", given, known)
    if "of" in given:
        given["of"] = _classes(f"{_BREAKER}.of", given["of"], loads=loads)
    return CircuitBreaker(policy, **given)


def _hook(given: dict[str, Any], place: PolicyPlace, *, loads: bool) -> Any:
    location = given.pop("dead_letters", None)
    if location is None:
        return _function(given.get("dead_letter"), loads=loads)
    if "dead_letter" in given:
        raise ConfigError(f"{_FIELD}.dead_letter", given["dead_letter"], "nothing beside dead_letters")
    check_location(f"{_FIELD}.dead_letters", location)
    store = open_dead_letters(location, connection=place.connection) if loads else location
    return DeadLetters(store, application=place.application)


def _function(value: object, *, loads: bool) -> Any:
    place, accepted = f"{_FIELD}.dead_letter", "module:function, such as billing:set_aside"
    if not isinstance(value, str):
        raise ConfigError(place, value, accepted)
    return _loaded(place, value, accepted) if loads else _checked(place, value, accepted, _stand_in)


def _classes(name: str, value: object, *, loads: bool) -> tuple[type[Exception], ...]:
    place, accepted = f"{_FIELD}.{name}", "a list of exception classes, built-in ones or as module:class"
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ConfigError(place, value, accepted)
    found: list[type[Exception]] = []
    for one in value:
        if ":" in one:
            kind = _loaded(place, one, accepted) if loads else _checked(place, one, accepted, Exception)
        else:
            kind = getattr(builtins, one, None)
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            raise ConfigError(place, one, accepted)
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
