"""Settings of the daemon: a properties file of the MultiLangDaemon, with a few additional keys.

`kinesis_sdk.consumer.properties` reads all keys of the KCL. This module reads the keys of the daemon itself, including the keys that only
this daemon has. The Java daemon ignores unknown keys, so one file serves both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.java_properties import closest_key, parse_pairs, read_text
from kinesis_sdk.consumer import ConsumerConfig, RetryBatch
from kinesis_sdk.consumer.leases import check_location
from kinesis_sdk.consumer.properties import KEYS, ClientSettings, MetricsSettings, parse_properties
from kinesis_sdk.multilang.command import split_command

EXIT_GRACE = 5.0
"""Seconds from closing a child's input to SIGTERM, and again from SIGTERM to SIGKILL."""
DEFAULT_SHUTDOWN_GRACE = 30.0
"""Seconds for a clean stop if the file does not contain ``shutdownGraceMillis``."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a child is started again: after its first failure, and the maximum."""
_MAX_CALLS = 1000
"""Maximum calls of children that are open at the same time: the maximum of ``ConsumerConfig.max_threads``."""

OnChildFailure = Literal["restart", "exit"]
OnChildException = Literal["ignore", "restart"]

OWN_KEYS: Mapping[str, tuple[str, ...]] = {
    "onChildFailure": ("restart", "exit"),
    "onChildException": ("ignore", "restart"),
    "recognizeRepetitions": ("true", "false"),
    "workerMetrics": ("off", "lease_table", "separate_table"),
}
"""Keys that only this daemon has, with their possible values; the first value is the default."""
EXIT_GRACE_KEY = "childExitGraceMillis"
"""Key that only this daemon has: milliseconds that a child may take to exit."""
_MAX_EXIT_GRACE = 600_000
LEASE_STORE_KEY = "leaseStore"
"""Key that only this daemon has: URL of a lease store other than DynamoDB, as in ``LeaseTableConfig.lease_store``."""
BATCH_RECORDS_KEY = "batchRecords"
"""Key that only this daemon has: maximum records of a ``processRecords`` message, as in ``ConsumerConfig.batch_records``."""
_MOST_BATCH_RECORDS = 1_000_000_000
_FURTHER_KEYS = (EXIT_GRACE_KEY, LEASE_STORE_KEY, BATCH_RECORDS_KEY)


@dataclass(frozen=True, kw_only=True)
class DaemonSettings:
    """Settings of a `MultiLangDaemon`.

    Attributes:
        words: Words of the command that is started for each shard.
        stream: Name or ARN of the stream.
        worker_id: Id of the worker; None generates a new id at each start.
        client: Region, endpoints, credentials.
        metrics: CloudWatch metrics; None uploads none.
        call_timeout: Seconds that a child may take for each message while a call is open; None for no limit.
        shutdown_grace: Seconds for a clean stop.
        empty_batches: Whether children are also called without records.
        on_child_failure: Reaction to a failed child: ``restart`` starts its shard again at the checkpoint, ``exit`` stops
            the daemon with exit code 1, as the Java daemon does.
        on_child_exception: Reaction to an exception of the application's code that the child's library only prints:
            ``ignore``, or ``restart`` as after a failure.
        exit_grace: Seconds from a child's last call to SIGTERM, and again from SIGTERM to SIGKILL.
        notes: Keys that do not have the effect that their names suggest, with the reason.
    """

    words: tuple[str, ...]
    application_name: str
    stream: str
    worker_id: str | None
    config: ConsumerConfig
    client: ClientSettings
    metrics: MetricsSettings | None
    call_timeout: float | None
    shutdown_grace: float
    empty_batches: bool
    on_child_failure: OnChildFailure
    on_child_exception: OnChildException
    exit_grace: float
    notes: tuple[tuple[str, str], ...]


def load_settings(path: str | os.PathLike[str], *, needs_executable: bool = True) -> DaemonSettings:
    """Read a properties file. Arguments and errors: see `parse_settings`.

    Raises:
        OSError: If the file cannot be read.
    """
    return parse_settings(read_text(path), needs_executable=needs_executable)


def parse_settings(text: str, *, needs_executable: bool = True) -> DaemonSettings:
    """Read the text of a properties file; ``needs_executable`` requires ``executableName``.

    Raises:
        ConfigError: If a required key is missing, a value is malformed or has no counterpart, or two keys contradict each
            other. The message names the key.
    """
    found = parse_properties(text)
    application = found.application
    pairs = dict(parse_pairs(text))
    own = {key: _choice(key, pairs.get(key)) for key in OWN_KEYS}
    stream = application.stream
    if application.application_name is None:
        raise _missing("applicationName", "the name of the application", found.unknown)
    if stream is None:
        raise _missing("streamName", "the name of the stream (or streamArn)", found.unknown)
    words: tuple[str, ...] = ()
    if needs_executable:
        if application.executable_name is None:
            raise _missing("executableName", "the command of the child process", found.unknown)
        words = tuple(split_command(application.executable_name))
    return DaemonSettings(
        words=words,
        application_name=application.application_name,
        stream=stream,
        worker_id=application.worker_id,
        config=_config(
            {
                **found.config,
                "recognize_repetitions": own["recognizeRepetitions"] == "true",
                "worker_metrics": own["workerMetrics"],
                "lease_store": _lease_store(pairs.get(LEASE_STORE_KEY)),
                **_batch_records(pairs.get(BATCH_RECORDS_KEY)),
            }
        ),
        client=found.client,
        metrics=found.metrics if "metricsLevel" in pairs and found.metrics.level != "none" else None,
        call_timeout=application.call_timeout,
        shutdown_grace=(
            DEFAULT_SHUTDOWN_GRACE if application.shutdown_grace is None else application.shutdown_grace
        ),
        empty_batches=application.empty_batches,
        on_child_failure=cast(OnChildFailure, own["onChildFailure"]),
        on_child_exception=cast(OnChildException, own["onChildException"]),
        exit_grace=_exit_grace(pairs.get(EXIT_GRACE_KEY)),
        notes=tuple(_notes(found.ignored, found.adjusted, found.unknown, pairs)),
    )


def _missing(key: str, what: str, unknown: list[tuple[str, str | None]]) -> ConfigError:
    similar = [name for name, closest in unknown if closest == key]
    hint = f"; {similar[0]} is not a key, did you mean {key}?" if similar else ""
    return ConfigError(key, "", f"{what}, which the file does not have{hint}")


def _choice(key: str, value: str | None) -> str:
    choices = OWN_KEYS[key]
    if value is None:
        return choices[0]
    if value.strip().lower() not in choices:
        raise ConfigError(key, value, " or ".join(choices))
    return value.strip().lower()


def _exit_grace(value: str | None) -> float:
    return EXIT_GRACE if value is None else _integer(EXIT_GRACE_KEY, value, _MAX_EXIT_GRACE) / 1000


def _batch_records(value: str | None) -> dict[str, int]:
    return {} if value is None else {"batch_records": _integer(BATCH_RECORDS_KEY, value, _MOST_BATCH_RECORDS)}


def _integer(key: str, value: str, most: int) -> int:
    text = value.strip()
    if not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) <= most:
        raise ConfigError(key, value, f"an integer from 1 to {most:,}")
    return int(text)


def _lease_store(value: str | None) -> str | None:
    url = None if value is None else value.strip()
    if url is not None:
        check_location(LEASE_STORE_KEY, url)
    return url


def _config(fields: Mapping[str, Any]) -> ConsumerConfig:
    fields = dict(fields)
    # The limit is per message of a child, and the conversation enforces it. As a limit for the whole callback it would
    # end children that checkpoint often.
    fields.pop("handler_timeout", None)
    fields["max_threads"] = _MAX_CALLS
    fields["on_handler_error"] = RetryBatch(initial_delay=_FIRST_PAUSE, max_delay=_LONGEST_PAUSE)
    return ConsumerConfig().with_fields(**fields)


def _notes(
    ignored: list[tuple[str, str]],
    adjusted: list[tuple[str, str]],
    unknown: list[tuple[str, str | None]],
    pairs: Mapping[str, str],
) -> list[tuple[str, str]]:
    notes = list(ignored)
    notes += [
        (key, reason)
        for key, reason in adjusted
        if key not in ("maxActiveThreads", "callProcessRecordsEvenForEmptyRecordList")
    ]
    if "maxActiveThreads" in pairs:
        notes.append(("maxActiveThreads", "each shard has its own threads, so there is nothing to limit"))
    if "processingLanguage" in pairs:
        notes.append(("processingLanguage", "information only, as in the KCL 2.x and 3.x"))
    if pairs.get("shutdownGraceMillis", "").strip() == "0":
        notes.append(
            (
                "shutdownGraceMillis",
                "0 stops at once, and children get no shutdownRequested; 30000 is the default here",
            )
        )
    for key, _ in unknown:
        if key not in (*OWN_KEYS, *_FURTHER_KEYS):
            closest = closest_key(key, [*KEYS, *OWN_KEYS, *_FURTHER_KEYS])
            notes.append(
                (
                    key,
                    "neither the KCL nor this daemon knows it"
                    + (f"; did you mean {closest}?" if closest else ""),
                )
            )
    return notes
