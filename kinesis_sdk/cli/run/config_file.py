"""Settings of a consumer in a TOML file.

```toml
initial_position = "TRIM_HORIZON"
max_threads = 8

[leases]
failover_time = 20
```
Names are those of `ConsumerConfig`; a table holds the fields of one of its groups.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.extras import install_hint
from kinesis_sdk.consumer import ConsumerConfig
from kinesis_sdk.consumer.config import GROUP_OF_FIELD


def read_config(path: str) -> ConsumerConfig:
    """Read a file.

    Raises:
        ConfigError: If the file cannot be read, is not TOML, or names a field or value that is not valid.
    """
    try:
        return config_from(_parse(Path(path).read_text(encoding="utf-8"), path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("config", path, f"a file that can be read ({error})") from error


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
    except ValueError as error:  # the base class of both parsers' errors
        raise ConfigError("config", path, f"a TOML file ({error})") from error
    return parsed


def config_from(values: dict[str, Any]) -> ConsumerConfig:
    """Return the configuration that a file's content describes.

    Raises:
        ConfigError: If a name or value is not valid; the message names it.
    """
    fields: dict[str, Any] = {}
    groups = set(GROUP_OF_FIELD.values())
    for name, value in values.items():
        if name not in groups:
            fields[name] = value
            continue
        if not isinstance(value, dict):
            raise ConfigError(name, value, f"a table, [{name}]")
        for member, own in value.items():
            if GROUP_OF_FIELD.get(member) != name:
                raise ConfigError(f"{name}.{member}", own, f"the name of a field of the group {name!r}")
            fields[member] = own
    return ConsumerConfig().with_fields(**fields)
