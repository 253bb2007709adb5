"""Options of the formats of values: their names, which are the same as in Spark, defaults and ranges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.spark.connection import ConnectionSettings
from kinesis_sdk.spark.parse.form import MODES, ValueFormat

_Table = dict[str, tuple[str, Callable[[str, str], Any]]]


def _mode(text: str, option: str) -> str:
    if text.strip().upper() not in MODES:
        raise ConfigError(option, text, "one of " + ", ".join(MODES))
    return text.strip().upper()


def _zone(text: str, option: str) -> str:  # noqa: ARG001
    from kinesis_sdk.spark.parse.moments import time_zone  # few jobs need it

    time_zone(text.strip())
    return text.strip()


def read_text(text: str, option: str) -> str:
    """Return a text without the blanks around it. An empty text is an error."""
    if not text.strip():
        raise ConfigError(option, text, "text")
    return text.strip()


def _separator(text: str, option: str) -> str:
    found = "\t" if text == "\\t" else text
    if not (len(found) == 1 and found.isascii() and found not in "\n\r\0"):
        raise ConfigError(option, text, "one ASCII character, such as ';' or a tab, written \\t")
    return found


def _mark(text: str, option: str) -> str:
    if not (len(text) <= 1 and text.isascii() and text not in {"\n", "\r", "\0"}):
        raise ConfigError(option, text, "one ASCII character, or an empty text to turn the option off")
    return text


def read_flag(text: str, option: str) -> bool:
    """Return True for the text ``true``, and False for ``false``."""
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise ConfigError(option, text, "true or false")
    return found


def _descriptor(text: str, option: str) -> bytes:
    from kinesis_sdk.spark.parse.protobuf_values import read_descriptor

    return read_descriptor(text.strip(), option)


def _registry(text: str, option: str) -> str:
    if text.strip().lower() != "glue":
        raise ConfigError(option, text, "glue, for the header of the AWS Glue Schema Registry")
    return "glue"


_COMMON: _Table = {
    "mode": ("mode", _mode),
    "columnNameOfCorruptRecord": ("corrupt_name", read_text),
}
"""Options of every ``valueFormat``."""

_TEXT: _Table = {"timeZone": ("zone", _zone)}
_REGISTRY: _Table = {
    "schemaRegistry": ("registry", _registry),
    "schemaRegistryEndpointUrl": ("registry_endpoint", read_text),
}
FORMATS: dict[str, _Table] = {
    "json": {**_TEXT, **_REGISTRY},
    "avro": {"avroSchema": ("schema", read_text), **_REGISTRY},
    "protobuf": {
        "protobufDescriptor": ("descriptor", _descriptor),
        "messageName": ("message", read_text),
        "emit.default.values": ("emit_defaults", read_flag),
        "messageIndex": ("index", read_flag),
        **_REGISTRY,
    },
    "csv": {
        **_TEXT,
        "sep": ("sep", _separator),
        "quote": ("quote", _mark),
        "escape": ("escape", _mark),
        "nullValue": ("null", lambda text, _option: text),
    },
}
"""Options of one ``valueFormat``."""

OPTIONS: _Table = {
    **_COMMON,
    **{name: option for options in FORMATS.values() for name, option in options.items()},
}
"""Options that need a ``valueFormat``."""

_BY_COLUMN = "nothing: name the column STRING, and convert it with Spark's functions"
_WHOLE_LINES = "nothing: each record is one line without a header, and the schema has its columns in order"
_ELSEWHERE = {
    **dict.fromkeys(
        (
            "dateFormat",
            "timestampFormat",
            "timestampNTZFormat",
            "locale",
            "nanValue",
            "positiveInf",
            "negativeInf",
        ),
        _BY_COLUMN,
    ),
    **dict.fromkeys(
        ("header", "inferSchema", "enforceSchema", "multiLine", "lineSep", "comment"), _WHOLE_LINES
    ),
    **dict.fromkeys(("encoding", "charset"), "nothing: text is UTF-8"),
    **dict.fromkeys(
        (
            "ignoreLeadingWhiteSpace",
            "ignoreTrailingWhiteSpace",
            "emptyValue",
            "charToEscapeQuoteEscaping",
            "unescapedQuoteHandling",
        ),
        "nothing: the reader has Spark's default only; from_csv on a column `data` has this option",
    ),
    "delimiter": "nothing: this option is called sep",
}
NOT_HERE = {name.lower(): accepted for name, accepted in _ELSEWHERE.items()}
"""Options of Spark's functions that the reader does not support, in lower case, and the alternative to each."""


def take_value_format(values: dict[str, Any], connection: ConnectionSettings) -> ValueFormat | None:
    """Remove the format of values and its options from the options of a reader, and return them.

    ``connection`` is the connection to Kinesis; a registry has the same region and credentials.

    Raises:
        ConfigError: If the format does not have one of the options, or options contradict each other.
    """
    name = values.pop("value_format", None)
    chosen = {field: (option, values.pop(field)) for option, (field, _) in OPTIONS.items() if field in values}
    accepted = {field for field, _ in {**_COMMON, **FORMATS.get(name, {})}.values()} if name else set()
    for field_name, (option, value) in chosen.items():
        if field_name not in accepted:
            where = f"with valueFormat={name}" if name else "without a valueFormat"
            raise ConfigError(option, value, f"nothing {where}")
    settings = {field: value for field, (_, value) in chosen.items()}
    if name is None:
        return None
    common: dict[str, Any] = {
        field: settings.pop(field) for field in ("mode", "corrupt_name", "zone") if field in settings
    }
    registry, endpoint = settings.pop("registry", None), settings.pop("registry_endpoint", None)
    if endpoint is not None and registry is None:
        raise ConfigError("schemaRegistryEndpointUrl", endpoint, "nothing without schemaRegistry=glue")
    if registry is not None:
        common["registry"] = replace(connection, endpoint_url=endpoint)
    form = ValueFormat(name=name, **common, settings=settings)
    if name in _CHECKS:
        _CHECKS[name](form)
    return form


def _check_csv(form: ValueFormat) -> None:
    sep, quote = form.settings.get("sep", ","), form.settings.get("quote", '"')
    if sep in {quote, form.settings.get("escape", "\\")}:
        raise ConfigError("sep", sep, "another character than quote and escape")


def _check_avro(form: ValueFormat) -> None:
    if form.registry is None and "schema" not in form.settings:
        raise ConfigError(
            "avroSchema", None, "the schema as JSON text, or schemaRegistry=glue, with valueFormat=avro"
        )


def _check_protobuf(form: ValueFormat) -> None:
    for field, option, accepted in (
        ("descriptor", "protobufDescriptor", "the path of a descriptor set"),
        ("message", "messageName", "the name of the message"),
    ):
        if field not in form.settings:
            raise ConfigError(option, None, f"{accepted}, with valueFormat=protobuf")
    if form.registry is None and "index" in form.settings:
        raise ConfigError("messageIndex", form.settings["index"], "nothing without schemaRegistry=glue")


_CHECKS = {"csv": _check_csv, "avro": _check_avro, "protobuf": _check_protobuf}
