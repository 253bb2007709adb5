"""Range checks for configuration: each error names the field, the value and the accepted range."""

from __future__ import annotations

import logging
import math
import re
from datetime import timedelta

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.log_fields import FieldLogger

_LOGGER = FieldLogger(logging.getLogger(__name__))

_told: set[tuple[str, float]] = set()
"""Fields and values that `warn_of_millis` has warned of."""

MAX_INT = 2**63 - 1
"""Maximum of settings without a maximum of their own, because counters, other languages and databases have 64 bits."""


def check_int(field: str, value: object, low: int, high: int | None = None) -> None:
    """Raise `ConfigError` unless ``value`` is an int (not a bool) within ``low … high``; without ``high``, up to `MAX_INT`."""
    accepted = (
        f"an integer from {low:,} to {high:,}" if high is not None else f"an integer of at least {low:,}"
    )
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ConfigError(field, value, accepted)
    if high is None and value > MAX_INT:
        raise ConfigError(field, value, f"{accepted}, and below 2^63")
    if high is not None and value > high:
        raise ConfigError(field, value, accepted)


def check_seconds(field: str, value: object, low: float, high: float | None = None) -> None:
    """Raise `ConfigError` unless ``value`` is a finite number of seconds within ``low … high``."""
    accepted = f"seconds from {low:g} to {high:g}" if high is not None else f"at least {low:g} seconds"
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not _is_finite(value)
        or value < low
        or (high is not None and value > high)
    ):
        raise ConfigError(field, value, accepted)


def check_rate(field: str, value: object) -> None:
    """Raise `ConfigError` unless ``value`` is a finite number of records per second, at least 0.001."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not _is_finite(value)
        or value < 0.001
    ):
        raise ConfigError(field, value, "at least 0.001 records a second")


def warn_of_millis(field: str, value: float, least: float) -> None:
    """Log a warning, once for each field and value, if a duration looks like the milliseconds of the KPL and the KCL.

    Args:
        field: The field.
        value: Its value in seconds, which is valid.
        least: Minimum value that looks like milliseconds.
    """
    if value < least or (field, value) in _told:
        return
    _told.add((field, value))
    _LOGGER.warning(
        "%s=%g: durations are in seconds here, and in milliseconds in the KPL and the KCL, so this is %s. If you mean milliseconds, write %g",
        field,
        value,
        timedelta(seconds=value),
        value / 1000,
    )


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond the largest float: arithmetic with it would fail later
        return False


def check_text(field: str, value: object, low: int = 1, high: int | None = None) -> None:
    """Raise `ConfigError` unless ``value`` is a str of ``low … high`` characters."""
    accepted = (
        f"text of {low} to {high} characters" if high is not None else f"text of at least {low} characters"
    )
    if not isinstance(value, str) or len(value) < low or (high is not None and len(value) > high):
        raise ConfigError(field, value, accepted)


_TABLE_NAME = re.compile(r"[a-zA-Z0-9_.-]{3,255}", re.ASCII)


def check_table_name(field: str, value: object) -> None:
    """Raise `ConfigError` unless DynamoDB accepts the name of a table."""
    if not isinstance(value, str) or not _TABLE_NAME.fullmatch(value):
        raise ConfigError(field, value, f"the name of a DynamoDB table, {_TABLE_NAME.pattern}")


_CONSUMER_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}", re.ASCII)


def check_consumer_name(field: str, value: object) -> None:
    """Raise `ConfigError` unless Kinesis accepts the name of a consumer for enhanced fan-out."""
    if not isinstance(value, str) or not _CONSUMER_NAME.fullmatch(value):
        accepted = f"the name of a consumer for enhanced fan-out, {_CONSUMER_NAME.pattern}"
        raise ConfigError(field, value, accepted)


_NAMESPACE = re.compile(r"[0-9A-Za-z.\-_/# ][0-9A-Za-z.\-_/#: ]{0,254}")


def check_namespace(field: str, value: object) -> None:
    """Raise `ConfigError` unless CloudWatch accepts a namespace for custom metrics (CloudWatch user guide)."""
    if (
        not isinstance(value, str)
        or not _NAMESPACE.fullmatch(value)
        or value.startswith("AWS/")
        or not value.strip()
    ):
        accepted = "1 to 255 of 0-9A-Za-z.-_/#: and space, not starting with 'AWS/' or ':'"
        raise ConfigError(field, value, accepted)


def check_choice(field: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise `ConfigError` unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise ConfigError(field, value, "one of " + ", ".join(choices))


def check_bool(field: str, value: object) -> None:
    """Raise `ConfigError` unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise ConfigError(field, value, "True or False")
