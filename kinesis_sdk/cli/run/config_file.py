"""Settings of a consumer in a TOML file, and the application that they belong to.

```toml
initial_position = "TRIM_HORIZON"
max_threads = 8

[leases]
failover_time = 20

[on_handler_error]
policy = "bisect"
dead_letter = "billing:set_aside"
retry_only = ["ConnectionError", "billing:DatabaseIsDown"]

[application]
name = "billing"
stream = "orders"
region = "eu-west-1"
```
The names are the fields of `ConsumerConfig`; ``initial_position`` may also be a time: ``2026-11-21T09:00:00Z`` (UTC without an offset,
with or without
quotes) or ``"@1732179600000"``. A table holds the fields of one of its groups. ``on_handler_error`` is a word, or a table with the fields of one of the policies
(`kinesis_sdk.consumer`, or retry tiers); functions and classes are written as ``module:attribute``. The table ``[application]`` replaces
options of the command line, see `ApplicationSettings`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

from kinesis_sdk.cli.run.policy_table import PolicyPlace, policy_from
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.extras import install_hint
from kinesis_sdk.common.position import AtTimestamp, Latest, TrimHorizon
from kinesis_sdk.common.position_text import parse_position
from kinesis_sdk.consumer import ConsumerConfig
from kinesis_sdk.consumer.leases import check_location, without_password

_TABLE = "application"
_POLICY = "on_handler_error"
_POSITION = "initial_position"


@dataclass(frozen=True, kw_only=True)
class ApplicationSettings:
    """The table ``[application]`` of a file, which replaces options of the command line. A missing key is None.

    Attributes:
        stream: Name or ARN of its stream.
        streams: Names or ARNs, if it has several.
        dynamodb_table: DynamoDB table whose stream the application reads instead, or the ARN of a stream.
        profile: Profile of ``~/.aws``.
        endpoint_url: Endpoint of all services.
        lease_store: URL of the lease store; in the configuration, it is ``lease_table.lease_store``.
        sink: URL of the database in which effects and positions change together.
    """

    name: str | None = None
    stream: str | None = None
    streams: tuple[str, ...] | None = None
    dynamodb_table: str | None = None
    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None
    lease_store: str | None = field(default=None, repr=False)
    sink: str | None = field(default=None, repr=False)

    @property
    def all_streams(self) -> tuple[str, ...]:
        """The streams, from either key."""
        return self.streams or (() if self.stream is None else (self.stream,))


@dataclass(frozen=True)
class ConfigFile:
    """The content of a file: settings of the consumer, and the table ``[application]``."""

    config: ConsumerConfig
    application: ApplicationSettings


def read_file(path: str, *, loads: bool = False, place: PolicyPlace | None = None) -> ConfigFile:
    """Read a file.

    ``loads`` imports the functions and classes that the file names. Only worker processes import them; other commands get a policy with
    stand-ins, because they never call the policy. ``place`` is the worker of the file's policy; None for other commands.

    Raises:
        ConfigError: If the file cannot be read, is not TOML, or names a field or value that is not valid.
    """
    try:
        values = _parse(Path(path).read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("config", path, f"a file that can be read ({error})") from error
    application = _application_from(values.pop(_TABLE, {}))
    config = config_from(values, loads=loads, place=place)
    if application.lease_store is not None:
        if config.lease_table.lease_store is not None:
            shown = without_password(application.lease_store)
            raise ConfigError(f"{_TABLE}.lease_store", shown, "nothing beside lease_table.lease_store")
        config = config.with_fields(lease_store=application.lease_store)
    return ConfigFile(config, application)


def read_config(path: str, *, loads: bool = False, place: PolicyPlace | None = None) -> ConsumerConfig:
    """Read the settings of the consumer in a file. Arguments and errors: see `read_file`."""
    return read_file(path, loads=loads, place=place).config


def _application_from(values: object) -> ApplicationSettings:
    if not isinstance(values, dict):
        raise ConfigError(_TABLE, _shown(values), f"a table, [{_TABLE}]")
    known = [one.name for one in fields(ApplicationSettings)]
    for name, value in values.items():
        place = f"{_TABLE}.{name}"
        if name not in known:
            raise _unknown(place, f"one of {', '.join(known)}")
        several = name == "streams"
        texts = value if several else [value]
        if not isinstance(texts, list) or not texts or not all(one and isinstance(one, str) for one in texts):
            raise ConfigError(place, _shown(value), "a list of texts" if several else "a text")
        if name == "lease_store":
            check_location(place, value)
    sources = [name for name in ("stream", "streams", "dynamodb_table") if name in values]
    if len(sources) > 1:
        raise ConfigError(
            f"{_TABLE}.{sources[1]}", _shown(values[sources[1]]), f"nothing beside {sources[0]}"
        )
    given: dict[str, Any] = {
        name: tuple(one) if isinstance(one, list) else one for name, one in values.items()
    }
    return ApplicationSettings(**given)


def _unknown(name: str, accepted: str) -> ConfigError:
    """Return the error for an unknown name, without its value: a misplaced or misspelled value may hold a password."""
    return ConfigError(name, None, accepted, problem=f"{name} is invalid: expected {accepted}")


def _shown(value: object) -> object:
    """Return a value with the passwords of URLs removed."""
    if isinstance(value, str):
        return without_password(value)
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if isinstance(value, dict):
        return {name: _shown(one) for name, one in value.items()}
    return value


def _parse(text: str, path: str) -> dict[str, Any]:
    try:
        # In the standard library since Python 3.11; the extra `cli` installs the same parser for Python 3.10.
        toml = import_module("tomllib")
    except ModuleNotFoundError:
        try:
            toml = import_module("tomli")
        except ModuleNotFoundError as error:
            raise ConfigError(
                "config",
                path,
                f"Python 3.11 or later; {install_hint('a TOML file in Python 3.10', 'tomli', 'cli')}",
            ) from error
    try:
        parsed: dict[str, Any] = toml.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError is the base class of both parsers' errors
        raise ConfigError("config", path, f"a TOML file ({error})") from error
    return parsed


def initial_position_from(value: Any) -> Any:
    """Return a start position in the form that `ConsumerConfig` accepts: a word, or a `datetime`.

    Text is parsed by the grammar of `kinesis_sdk.common.position_text`, and a TOML date or time is converted; any other
    value is returned unchanged.

    Raises:
        ConfigError: If a text is not one of these positions, or is a time relative to now, because each process would begin at a different
            position.
    """
    if isinstance(value, date):  # a datetime is a date, too
        value = value.isoformat()
    if not isinstance(value, str):
        return value
    start = parse_position(value, field=_POSITION, now=None, accepted=(TrimHorizon, Latest, AtTimestamp))
    return start.moment if isinstance(start, AtTimestamp) else str(start)


def config_from(
    values: dict[str, Any], *, loads: bool = False, place: PolicyPlace | None = None
) -> ConsumerConfig:
    """Return the configuration of a file's content, from which the caller has removed the table ``[application]``. See `read_file`.

    Raises:
        ConfigError: If a name or value is not valid; the message names it.
    """
    given: dict[str, Any] = {}
    group_of = ConsumerConfig.groups()
    groups = set(group_of.values())
    known = {*group_of, *(one.name for one in fields(ConsumerConfig))}
    for name, value in values.items():
        if name not in known:
            raise _unknown(name, "the name of a field of ConsumerConfig or of one of its groups")
        if name == _POLICY and isinstance(value, dict):
            given[name] = policy_from(value, loads=loads, place=place)
            continue
        if name == _POSITION:
            given[name] = initial_position_from(value)
            continue
        if name not in groups:
            given[name] = value
            continue
        if not isinstance(value, dict):
            raise ConfigError(name, _shown(value), f"a table, [{name}]")
        for member, own in value.items():
            if group_of.get(member) != name:
                raise _unknown(f"{name}.{member}", f"the name of a field of the group {name!r}")
            given[member] = own
    return ConsumerConfig().with_fields(**given)
