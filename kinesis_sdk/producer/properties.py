"""Reader of the KPL's ``.properties`` files, for services that keep their settings when they migrate.

    found = load_properties("kpl.properties")
    producer = Producer(found.producer_config(), region_name=found.client.region_name)
    for key, reason in found.ignored:
        log.info("%s is ignored: %s", key, reason)

Every key of `KinesisProducerConfiguration.fromProperties` is either mapped (milliseconds become seconds) or reported with
the reason why it is ignored. Keys are the names of the KPL's setters without ``set``; they are case-sensitive, as in the
KPL. This module generates the table of all keys in docs/kpl-properties.md.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.java_properties import Key, closest_key, parse_pairs, read_text, write_reference
from kinesis_sdk.common.validation import check_namespace
from kinesis_sdk.producer.config import MAX_RECORD_SIZE, MAX_REQUEST_SIZE, ProducerConfig

_BIG = 2**63 - 1
_HOST = re.compile(r"[A-Za-z0-9.\-]+")
_REGION = re.compile(r"[a-z]+-([a-z]+-)?[a-z]+-[0-9]")


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """Settings of a file for the connection to Kinesis. None and empty values mean that the file does not contain the setting."""

    region_name: str | None = None
    """Region, for `Producer` or for your own client."""

    endpoint_url: str | None = None
    """``https://`` followed by the host and port from the file, for `Producer` or for your own client."""

    verify: bool | str | None = None
    """False, or the path of a certificate bundle: the argument ``verify`` of ``session.client(…)``."""

    proxies: dict[str, str] = field(default_factory=dict, repr=False)
    """Proxies for ``botocore.config.Config(proxies=…)``. Left out of ``repr``, because it may contain a password."""


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """Settings of a file for metrics; the fields are arguments of `kinesis_sdk.metrics.CloudWatchMetrics`.

    The defaults are the KPL's, which uploads all metrics by default. This SDK uploads none without a sink.
    """

    level: Literal["none", "summary", "detailed"] = "detailed"
    """``none``, ``summary`` or ``detailed``."""

    granularity: Literal["global", "stream", "shard"] = "shard"
    """``global``, ``stream`` or ``shard``."""

    namespace: str = "KinesisProducerLibrary"
    """CloudWatch namespace."""

    upload_delay: float = 60.0
    """Seconds between two uploads."""

    endpoint_url: str | None = None
    """CloudWatch endpoint; if None, botocore resolves it."""


@dataclass(frozen=True, kw_only=True)
class KplProperties:
    """Content of a properties file, by purpose."""

    config: dict[str, Any]
    """Arguments of `ProducerConfig`, only for settings in the file."""

    client: ClientSettings
    """Region, endpoint, certificates, proxy."""

    metrics: MetricsSettings
    """Level, granularity, namespace, delay."""

    ignored: list[tuple[str, str]]
    """The KPL's keys that are ignored, each with the reason."""

    adjusted: list[tuple[str, str]]
    """Keys with values that the KPL accepts and this SDK limits, each with the change."""

    unknown: list[tuple[str, str | None]]
    """Keys that do not exist in the KPL either (it logs a warning), each with the most similar key of the KPL."""

    of_client: list[str] = field(default_factory=list)
    """Keys of connection settings. Their values are in ``client`` and in the endpoint of ``metrics``."""

    def producer_config(self) -> ProducerConfig:
        """Return the settings as `ProducerConfig`.

        Raises:
            ConfigError: If a value is out of range.
        """
        return ProducerConfig(**self.config)

    def without_effect(self) -> list[tuple[str, str]]:
        """Return the keys that `ProducerConfig.from_properties` cannot fully apply, each with the reason."""
        unknown = [
            (key, "the KPL does not know it" + (f"; did you mean {closest}?" if closest else ""))
            for key, closest in self.unknown
        ]
        return [*self.ignored, *self.adjusted, *unknown, *((key, _OF_CLIENT) for key in self.of_client)]


def _boolean(key: str, value: str, _adjusted: list[tuple[str, str]]) -> bool:
    # Java reads everything but "true" as false, so a typo would silently switch a feature off.
    text = value.strip().lower()
    if text not in {"true", "false"}:
        raise ConfigError(key, value, "true or false")
    return text == "true"


def _whole(key: str, value: str, low: int, high: int) -> int:
    text = value.strip()
    accepted = f"an integer from {low:,} to {high:,}"
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", text) or not low <= int(text) <= high:
        raise ConfigError(key, value, accepted)
    return int(text)


def _integer(low: int, high: int, ours: int | None = None, least: int | None = None) -> Callable[..., int]:
    """Return a reader of integers in the KPL's range; values outside ``least`` to ``ours``, this SDK's range, are adjusted."""

    def read(key: str, value: str, adjusted: list[tuple[str, str]]) -> int:
        number = _whole(key, value, low, high)
        if least is not None and number < least:
            adjusted.append((key, f"{number:,} was raised to {least:,}, the minimum of this SDK"))
            return least
        if ours is None or number <= ours:
            return number
        adjusted.append((key, f"{number:,} was limited to {ours:,}, the maximum of this SDK"))
        return ours

    return read


def _milliseconds(
    low: int, high: int, ours: int | None = None, least: int | None = None
) -> Callable[..., float]:
    whole = _integer(low, high, ours, least)

    def read(key: str, value: str, adjusted: list[tuple[str, str]]) -> float:
        return whole(key, value, adjusted) / 1000

    return read


def _choice(*choices: str) -> Callable[..., str]:
    def read(key: str, value: str, _adjusted: list[tuple[str, str]]) -> str:
        if value.strip() not in choices:
            raise ConfigError(key, value, "one of " + ", ".join(choices))
        return value.strip()

    return read


def _pattern(pattern: re.Pattern[str], accepted: str) -> Callable[..., str]:
    def read(key: str, value: str, _adjusted: list[tuple[str, str]]) -> str:
        text = value.strip()
        if text and not pattern.fullmatch(text):
            raise ConfigError(key, value, accepted)
        return text

    return read


def _namespace(key: str, value: str, _adjusted: list[tuple[str, str]]) -> str:
    text = value.strip()
    check_namespace(key, text)
    return text


def _text(_key: str, value: str, _adjusted: list[tuple[str, str]]) -> str:
    return value.strip()


def _as_is(_key: str, value: str, _adjusted: list[tuple[str, str]]) -> str:
    return value


_host = _pattern(_HOST, "a host name or IP address, without protocol or path")
_port = _integer(1, 65_535)


def _config(name: str, read: Callable[..., Any], note: str = "") -> Key:
    return Key(f"`{name}`{note}", "config", name, read)


def _client(name: str, read: Callable[..., Any], effect: str) -> Key:
    return Key(effect, "client", name, read)


def _metrics(name: str, read: Callable[..., Any], effect: str = "") -> Key:
    return Key(effect or f"`CloudWatchMetrics({name}=…)`", "metrics", name, read)


_NO_PROCESS = "this SDK has no native process"
_NO_DAEMON = "this SDK has no daemon whose health could be checked"
_NO_STS = "the KPL does not use it either; botocore has its own settings for STS"

KEYS: dict[str, Key] = {
    "AggregationEnabled": _config("aggregation_enabled", _boolean),
    "AggregationMaxCount": _config("aggregation_max_count", _integer(1, _BIG)),
    "AggregationMaxSize": _config("aggregation_max_size", _integer(64, MAX_RECORD_SIZE)),
    "CollectionMaxCount": _config("collection_max_count", _integer(1, 500)),
    "CollectionMaxSize": _config(
        "collection_max_size",
        _integer(52_224, _BIG, ours=MAX_REQUEST_SIZE),
        f", at most {MAX_REQUEST_SIZE:,} bytes",
    ),
    "MaxUserRecordSize": _config("max_user_record_size", _integer(64, MAX_RECORD_SIZE)),
    "RecordMaxBufferedTime": _config(
        "record_max_buffered_time", _milliseconds(0, _BIG, ours=3_600_000), ", at most 1 h"
    ),
    # The KPL's documentation recommends "a large value like INT_MAX" to applications that must not lose a record.
    "RecordTtl": _config("record_ttl", _milliseconds(100, _BIG, ours=604_800_000), ", at most 7 days"),
    "RateLimit": _config("rate_limit", _integer(1, _BIG, ours=10_000), ", at most 10,000"),
    "RecordDistributionStrategyDefault": _config(
        "record_distribution_strategy_default", _choice("UNSET", "AUTO", "USER_PARTITION_KEY")
    ),
    "DescribeStreamSummaryIntervalMs": _config(
        "describe_stream_summary_interval",
        _milliseconds(1, _BIG, least=500, ours=604_800_000),
        ", 0.5 s to 7 days",
    ),
    "FailIfThrottled": _config("fail_if_throttled", _boolean),
    "RequestTimeout": _config("request_timeout", _milliseconds(100, 600_000)),
    "ConnectTimeout": _config("connect_timeout", _milliseconds(100, 300_000)),
    "MaxConnections": _config("max_connections", _integer(1, 256)),
    "Region": _client("region", _pattern(_REGION, "a region like eu-west-1"), "`Producer(region_name=…)`"),
    "KinesisEndpoint": _client("host", _host, "`Producer(endpoint_url=…)`, its host"),
    "KinesisPort": _client("port", _port, "`Producer(endpoint_url=…)`, its port"),
    "VerifyCertificate": _client("verify", _boolean, "`verify` of your own client"),
    "CaCertFile": _client("ca_file", _text, "`verify` of your own client: the path of a bundle"),
    "ProxyHost": _client("proxy_host", _text, "`proxies` of your own client"),
    "ProxyPort": _client("proxy_port", _port, "`proxies` of your own client"),
    "ProxyUserName": _client("proxy_user", _as_is, "`proxies` of your own client"),
    "ProxyPassword": _client("proxy_password", _as_is, "`proxies` of your own client"),
    "MetricsLevel": _metrics("level", _choice("none", "summary", "detailed")),
    "MetricsGranularity": _metrics("granularity", _choice("global", "stream", "shard")),
    "MetricsNamespace": _metrics("namespace", _namespace),
    "MetricsUploadDelay": _metrics("upload_delay", _milliseconds(1, 60_000)),
    "CloudwatchEndpoint": _metrics("host", _host, "`CloudWatchMetrics(endpoint_url=…)`, its host"),
    "CloudwatchPort": _metrics("port", _port, "`CloudWatchMetrics(endpoint_url=…)`, its port"),
    "MinConnections": Key("the KPL does not use it either; connections are opened when they are needed"),
    "NativeExecutable": Key(_NO_PROCESS),
    "TempDirectory": Key("nothing is unpacked: " + _NO_PROCESS),
    "EnableCoreDumps": Key(_NO_PROCESS),
    "ThreadingModel": Key("each request in flight has a thread of a pool"),
    "ThreadPoolSize": Key("at most max_connections sender threads are started, on demand"),
    "CredentialsRefreshDelay": Key("botocore refreshes credentials when they are about to expire"),
    "CaCertPath": Key("botocore takes a bundle in one file, not a directory: CaCertFile, or AWS_CA_BUNDLE"),
    "LogLevel": Key("set the level of the logger 'kinesis_sdk'"),
    "StsEndpoint": Key(_NO_STS),
    "StsPort": Key(_NO_STS),
    "EnableOldestFutureTracker": Key("the oldest record is always known at no cost"),
    "ReturnUserRecordOnFailure": Key(
        "the error of a failed record names stream, partition key and all attempts"
    ),
    "EnableDaemonHealthCheck": Key(_NO_DAEMON),
    "DaemonHealthCheckTimeoutMs": Key(_NO_DAEMON),
    "UserRecordTimeoutInMillis": Key(
        "wait with future.result(timeout); record_ttl limits the time until a result"
    ),
    "GlueSchemaRegistryPropertiesFilePath": Key(
        "encode records with the library of the schema registry before put"
    ),
}

_OF_CLIENT = "connections are settings of the client: Producer(region_name=…, endpoint_url=…, client=…)"

# Keys of KPL versions before 0.12, which later versions do not know.
_RENAMED = {"CustomEndpoint": "KinesisEndpoint", "Port": "KinesisPort"}
_NO_CREDENTIALS = "credentials come from botocore's chain (environment, profile, role), never from this file"
_BEFORE = {"AwsAccessKeyId": Key(_NO_CREDENTIALS), "AwsSecretKey": Key(_NO_CREDENTIALS)}


def load_properties(path: str | os.PathLike[str], *, strict: bool = False) -> KplProperties:
    r"""Read a KPL's properties file.

    Args:
        path: Path of the file, in the encoding of Java properties (ISO-8859-1 with ``\uXXXX`` escapes).
        strict: As for `parse_properties`.

    Raises:
        ConfigError: As for `parse_properties`.
        OSError: If the file cannot be read.
    """
    return parse_properties(read_text(path), strict=strict)


def parse_properties(text: str, *, strict: bool = False) -> KplProperties:
    """Read the text of a KPL's properties file.

    Args:
        text: Text in the syntax of Java properties.
        strict: Whether to reject keys that are ignored, adjusted or unknown.

    Raises:
        ConfigError: If the KPL would reject a value, an escape is malformed, or ``strict`` rejects a key. The message names
            the key.
    """
    parts: dict[str, dict[str, Any]] = {"config": {}, "client": {}, "metrics": {}}
    ignored: list[tuple[str, str]] = []
    adjusted: list[tuple[str, str]] = []
    unknown: list[tuple[str, str | None]] = []
    of_client: list[str] = []
    for key, value in dict(parse_pairs(text)).items():
        target = KEYS.get(key) or _BEFORE.get(key)
        if target is None:
            unknown.append((key, _RENAMED.get(key) or closest_key(key, list(KEYS))))
        elif target.read is not None:
            parts[target.part][target.name] = target.read(key, value, adjusted)
            if target.part == "client" or target.name in {"host", "port"}:
                of_client.append(key)
        else:
            ignored.append((key, target.effect))
    client, metrics = parts["client"], parts["metrics"]
    for part, key in ((client, "KinesisPort"), (metrics, "CloudwatchPort")):
        if part.get("port") not in {None, 443} and not part.get("host"):
            ignored.append((key, f"a port without {key.removesuffix('Port')}Endpoint"))
    endpoint_url = _endpoint_url(metrics.pop("host", ""), metrics.pop("port", 443))
    result = KplProperties(
        config=parts["config"],
        client=_client_settings(client),
        metrics=MetricsSettings(**metrics, endpoint_url=endpoint_url),
        ignored=ignored,
        adjusted=adjusted,
        unknown=unknown,
        of_client=of_client,
    )
    if strict:
        _reject_without_effect(result)
    return result


def _endpoint_url(host: str, port: int) -> str | None:
    if not host:
        return None
    return f"https://{host}" if port == 443 else f"https://{host}:{port}"


def _client_settings(found: dict[str, Any]) -> ClientSettings:
    verify: bool | str | None = found.get("verify")
    if verify is not False:
        verify = found.get("ca_file") or None  # verification is the default
    proxies = {}
    if found.get("proxy_host"):
        scheme, _, host = found["proxy_host"].rstrip("/").rpartition("://")
        login = quote(found.get("proxy_user", ""), safe="")
        if login and found.get("proxy_password"):
            login = f"{login}:{quote(found['proxy_password'], safe='')}"
        at = f"{login}@" if login else ""
        proxies["https"] = f"{scheme or 'http'}://{at}{host}:{found.get('proxy_port', 443)}"
    return ClientSettings(
        region_name=found.get("region") or None,
        endpoint_url=_endpoint_url(found.get("host", ""), found.get("port", 443)),
        verify=verify,
        proxies=proxies,
    )


def _reject_without_effect(result: KplProperties) -> None:
    for key, closest in result.unknown:
        hint = f"; did you mean {closest}?" if closest else ""
        raise ConfigError("properties", key, f"a key of the KPL{hint}")
    for key, reason in (*result.adjusted, *result.ignored):
        raise ConfigError("properties", key, f"only keys that take effect unchanged ({reason})")


def reference() -> str:
    """Return the table of all keys for docs/kpl-properties.md."""
    rows = (f"| `{key}` | {target.shown} |" for key, target in KEYS.items())
    return "\n".join(["| key | here |", "|---|---|", *rows])


if __name__ == "__main__":
    write_reference(Path(sys.argv[1]), reference())
