"""Options of a table of Spark's catalog, carried from ``CREATE TABLE`` to the scans of the table.

Spark 4.0 to 4.3 stores the options of ``CREATE TABLE … USING kinesis_sdk OPTIONS (…)`` in the catalog and passes them to
`KinesisDataSource.schema` when the table is created. It does not pass them to the readers and writers of a scan: its Python
table (``PythonDataSourceV2.getTable``) ignores the properties of the table. It does keep the schema. The schema of a table
therefore carries the options as metadata of its first column, where a reader finds them.

Only a table has this metadata. Spark copies the metadata of columns to everything that is derived from them. Therefore frames of
``load()`` and of temporary views, whose options do reach their scans, have no such metadata.

Writers ignore the metadata, because a frame that is read from a table also has it. A program that copies a table's stream and
forgets ``streamName`` for the target would write into the stream that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.spark.options import CREDENTIAL_OPTIONS, STREAM_OPTIONS

METADATA_KEY = "kinesis_sdk.options"
"""Key in the metadata of the first column of a table; its value is an object with the options."""

_PREFIX = "option."
_ADDED_BY_SPARK = "provider"

READ_HINT = (
    "a stream name. Spark passes the options of CREATE TABLE to no data source in Python, and a table whose columns are listed cannot "
    "keep them: create it without columns, or write CREATE TEMPORARY VIEW … USING kinesis_sdk OPTIONS (streamName '…'), or "
    "SELECT … FROM … WITH ('streamName' = '…')"
)
WRITE_HINT = (
    "a stream name. Spark passes the options of CREATE TABLE to no data source in Python: write "
    "INSERT INTO … WITH ('streamName' = '…') …, or insert into a view made with CREATE TEMPORARY VIEW … USING kinesis_sdk "
    "OPTIONS (streamName '…')"
)


def creation_options(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being created; None if no table is being created.

    For ``CREATE TABLE``, Spark passes each option twice, once with a prefix, together with other properties of the table.

    Raises:
        ConfigError: If the options contain credentials, which would be readable in the catalog and in the schema of every query.
    """
    given = {name.lower(): text for name, text in options.items()}
    created = {name[len(_PREFIX) :]: text for name, text in given.items() if name.startswith(_PREFIX)}
    if not created and _ADDED_BY_SPARK not in given:
        return None
    for name in CREDENTIAL_OPTIONS:
        if name.lower() in created:
            raise ConfigError(
                f"option {name}",
                "…",
                "no credentials in the options of a table, which Spark's catalog shows: use roleArn, profile, or the "
                "environment of Spark's processes, or CREATE TEMPORARY VIEW",
            )
    return created


def read_options(given: Mapping[str, str], schema: Any) -> Mapping[str, str]:
    """Return the options of a read: the options of its table, overridden by the given ones.

    Given options that name a stream replace the table's options completely, so that a schema taken from a table can be
    used to read another stream.

    Raises:
        ConfigError: If there are no options.
    """
    named = {name.lower() for name in given}
    stored: dict[str, str] = {}
    if not named & {name.lower() for name in STREAM_OPTIONS}:
        for field in schema.fields:
            stored.update((field.metadata or {}).get(METADATA_KEY, {}))
    if not given and not stored:
        raise ConfigError("streamName", None, READ_HINT)
    return {**stored, **{name.lower(): text for name, text in given.items()}} if stored else given


def check_write_options(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options of a write.

    Raises:
        ConfigError: If there are no options, as for ``INSERT INTO`` a table.
    """
    if not given:
        raise ConfigError("streamName", None, WRITE_HINT)
    return given
