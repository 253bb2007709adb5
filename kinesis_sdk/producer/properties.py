"""Reads a KPL's ``.properties`` file, so that a service moves over with the settings it has.

    found = load_properties("kpl.properties")
    producer = Producer(found.producer_config(), region_name=found.client.region_name)
    for key, reason in found.ignored:
        log.info("%s has no meaning here: %s", key, reason)

Every key that `KinesisProducerConfiguration.fromProperties` knows is either mapped, with milliseconds as seconds, or
reported with the reason why it has no meaning here. Keys are the KPL's setters without ``set``, and as there they
are case-sensitive.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.validation import check_namespace
from kinesis_sdk.producer.config import MAX_RECORD_SIZE, MAX_REQUEST_SIZE, ProducerConfig

_BIG = 2**63 - 1
_HOST = re.compile(r"[A-Za-z0-9.\-]+")
_REGION = re.compile(r"[a-z]+-([a-z]+-)?[a-z]+-[0-9]")


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """What a file says about the connection to Kinesis. None and empty mean: the file says nothing."""

    region_name: str | None = None
    """Region, for `Producer` or a client of your own."""

    endpoint_url: str | None = None
    """``https://`` and the file's host and port, for `Producer` or a client of your own."""

    verify: bool | str | None = None
    """False, or the path of a bundle of certificates: the argument ``verify`` of ``session.client(…)``."""

    proxies: dict[str, str] = field(default_factory=dict, repr=False)
    """For ``botocore.config.Config(proxies=…)``. May hold a password: it is left out of ``repr``."""


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """What a file says about metrics; the fields are arguments of `kinesis_sdk.metrics.CloudWatchMetrics`.

    Defaults are the KPL's: it uploads everything unless told otherwise, this SDK nothing unless it is given a
    sink.
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
    """CloudWatch endpoint; None leaves it to botocore."""


@dataclass(frozen=True, kw_only=True)
class KplProperties:
    """A properties file, sorted by who wants to know."""

    config: dict[str, Any]
    """Arguments of `ProducerConfig`; only what the file sets."""

    client: ClientSettings
    """Region, endpoint, certificates, proxy."""

    metrics: MetricsSettings
    """Level, granularity, namespace, delay."""

    ignored: list[tuple[str, str]]
    """Keys of the KPL that have no meaning here, and why."""

    adjusted: list[tuple[str, str]]
    """Keys whose value the KPL takes, but is more than makes sense here, and what was made of it."""

    unknown: list[tuple[str, str | None]]
    """Keys that the KPL does not know either (it warns and goes on), and the closest one that it knows."""

    of_client: list[str] = field(default_factory=list)
    """Keys about connections: what they say is in ``client``, and in the endpoint of ``metrics``."""

    def producer_config(self) -> ProducerConfig:
        """The settings as `ProducerConfig`.

        Raises:
            ConfigError: A value is out of its range.
        """
        return ProducerConfig(**self.config)

    def without_effect(self) -> list[tuple[str, str]]:
        """Keys that `ProducerConfig.from_properties` can not do justice to, and why."""
        unknown = [
            (key, "the KPL does not know it" + (f"; did you mean {closest}?" if closest else ""))
            for key, closest in self.unknown
        ]
        return [*self.ignored, *self.adjusted, *unknown, *((key, _OF_CLIENT) for key in self.of_client)]


class _Field(NamedTuple):
    """Where a key goes: part of the result, name there, how to read it."""

    part: str
    name: str
    read: Callable[[str, str, list[tuple[str, str]]], Any]


def _boolean(key: str, value: str, _adjusted: list[tuple[str, str]]) -> bool:
    # Java takes everything but "true" for false: a typo would switch something off, and nobody would know.
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


def _integer(low: int, high: int, ours: int | None = None) -> Callable[..., int]:
    """Reads the KPL's range; what lies above ``ours``, the most that makes sense here, becomes that."""

    def read(key: str, value: str, adjusted: list[tuple[str, str]]) -> int:
        number = _whole(key, value, low, high)
        if ours is None or number <= ours:
            return number
        adjusted.append((key, f"{number:,} became {ours:,}, the most there is here"))
        return ours

    return read


def _milliseconds(low: int, high: int, ours: int | None = None) -> Callable[..., float]:
    whole = _integer(low, high, ours)

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

_FIELDS = {
    "AggregationEnabled": _Field("config", "aggregation_enabled", _boolean),
    "AggregationMaxCount": _Field("config", "aggregation_max_count", _integer(1, _BIG)),
    "AggregationMaxSize": _Field("config", "aggregation_max_size", _integer(64, MAX_RECORD_SIZE)),
    "CollectionMaxCount": _Field("config", "collection_max_count", _integer(1, 500)),
    "CollectionMaxSize": _Field(
        "config", "collection_max_size", _integer(52_224, _BIG, ours=MAX_REQUEST_SIZE)
    ),
    "MaxUserRecordSize": _Field("config", "max_user_record_size", _integer(64, MAX_RECORD_SIZE)),
    "RecordMaxBufferedTime": _Field(
        "config", "record_max_buffered_time", _milliseconds(0, _BIG, ours=3_600_000)
    ),
    # "A large value like INT_MAX" is what the KPL's own text recommends to those who never want to lose a record.
    "RecordTtl": _Field("config", "record_ttl", _milliseconds(100, _BIG, ours=604_800_000)),
    "RateLimit": _Field("config", "rate_limit", _integer(1, _BIG, ours=10_000)),
    "FailIfThrottled": _Field("config", "fail_if_throttled", _boolean),
    "RequestTimeout": _Field("config", "request_timeout", _milliseconds(100, 600_000)),
    "ConnectTimeout": _Field("config", "connect_timeout", _milliseconds(100, 300_000)),
    "MaxConnections": _Field("config", "max_connections", _integer(1, 256)),
    "Region": _Field("client", "region", _pattern(_REGION, "a region like eu-west-1")),
    "KinesisEndpoint": _Field("client", "host", _host),
    "KinesisPort": _Field("client", "port", _port),
    "VerifyCertificate": _Field("client", "verify", _boolean),
    "CaCertFile": _Field("client", "ca_file", _text),
    "ProxyHost": _Field("client", "proxy_host", _text),
    "ProxyPort": _Field("client", "proxy_port", _port),
    "ProxyUserName": _Field("client", "proxy_user", _as_is),
    "ProxyPassword": _Field("client", "proxy_password", _as_is),
    "MetricsLevel": _Field("metrics", "level", _choice("none", "summary", "detailed")),
    "MetricsGranularity": _Field("metrics", "granularity", _choice("global", "stream", "shard")),
    "MetricsNamespace": _Field("metrics", "namespace", _namespace),
    "MetricsUploadDelay": _Field("metrics", "upload_delay", _milliseconds(1, 60_000)),
    "CloudwatchEndpoint": _Field("metrics", "host", _host),
    "CloudwatchPort": _Field("metrics", "port", _port),
}

_OF_CLIENT = "connections are the client's: Producer(region_name=…, endpoint_url=…, client=…)"

_NO_PROCESS = "there is no native process"
_NO_DAEMON = "there is no daemon whose health could be checked"
_NO_STS = "the KPL does not use it either; botocore has its own settings for STS"

_MEANINGLESS = {
    "MinConnections": "the KPL does not use it either; connections are opened when they are needed",
    "NativeExecutable": _NO_PROCESS,
    "TempDirectory": "nothing is unpacked: " + _NO_PROCESS,
    "EnableCoreDumps": _NO_PROCESS,
    "ThreadingModel": "one thread for each request under way, kept for the next one",
    "ThreadPoolSize": "as many sending threads as max_connections, started when they are needed",
    "CredentialsRefreshDelay": "botocore refreshes credentials when they are about to expire",
    "CaCertPath": "botocore takes a bundle in one file, not a directory: CaCertFile, or AWS_CA_BUNDLE",
    "LogLevel": "set the level of the logger 'kinesis_sdk'",
    "StsEndpoint": _NO_STS,
    "StsPort": _NO_STS,
    "EnableOldestFutureTracker": "finding the oldest record costs nothing here",
    "ReturnUserRecordOnFailure": "a failed record's error names stream, partition key and all attempts",
    "EnableDaemonHealthCheck": _NO_DAEMON,
    "DaemonHealthCheckTimeoutMs": _NO_DAEMON,
    "UserRecordTimeoutInMillis": "wait with future.result(timeout); record_ttl bounds how long that can be",
    "GlueSchemaRegistryPropertiesFilePath": "encode with the schema registry's own library before put",
}

# Names of KPLs before 0.12, which later ones do not know.
_RENAMED = {"CustomEndpoint": "KinesisEndpoint", "Port": "KinesisPort"}
_NO_CREDENTIALS = "credentials come from botocore's chain (environment, profile, role), never from this file"
_MEANINGLESS_BEFORE = {"AwsAccessKeyId": _NO_CREDENTIALS, "AwsSecretKey": _NO_CREDENTIALS}


def load_properties(path: str | os.PathLike[str], *, strict: bool = False) -> KplProperties:
    r"""Read a KPL's properties file.

    Args:
        path: The file, in Java's encoding of such files (ISO-8859-1 with ``\uXXXX`` escapes).
        strict: As for `parse_properties`.

    Raises:
        ConfigError: As for `parse_properties`.
        OSError: The file can not be read.
    """
    return parse_properties(Path(path).read_bytes().decode("iso-8859-1"), strict=strict)


def parse_properties(text: str, *, strict: bool = False) -> KplProperties:
    """Read the text of a KPL's properties file.

    Args:
        text: Java properties.
        strict: Accept only keys that take effect as they stand: none that is ignored, adjusted or unknown.

    Raises:
        ConfigError: A value that the KPL would refuse, a malformed escape, or what ``strict`` does not accept;
            names the key.
    """
    parts: dict[str, dict[str, Any]] = {"config": {}, "client": {}, "metrics": {}}
    ignored: list[tuple[str, str]] = []
    adjusted: list[tuple[str, str]] = []
    unknown: list[tuple[str, str | None]] = []
    of_client: list[str] = []
    known = [*_FIELDS, *_MEANINGLESS]
    for key, value in dict(parse_pairs(text)).items():
        target = _FIELDS.get(key)
        reason = _MEANINGLESS.get(key) or _MEANINGLESS_BEFORE.get(key)
        if target is not None:
            parts[target.part][target.name] = target.read(key, value, adjusted)
            if target.part == "client" or target.name in {"host", "port"}:
                of_client.append(key)
        elif reason is not None:
            ignored.append((key, reason))
        else:
            unknown.append((key, _RENAMED.get(key) or _closest(key, known)))
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
        _refuse_leftovers(result)
    return result


def parse_pairs(text: str) -> Iterator[tuple[str, str]]:
    r"""Keys and values of a text in the syntax of ``java.util.Properties.load``, in order.

    Raises:
        ConfigError: A malformed ``\uXXXX`` escape.
    """
    for line in _logical_lines(text):
        end = 0
        while end < len(line) and line[end] not in "=: \t\f":
            end += 2 if line[end] == "\\" else 1
        key, rest = line[:end], line[end:].lstrip(" \t\f")
        if rest[:1] in {"=", ":"}:
            rest = rest[1:].lstrip(" \t\f")
        yield _unescape(key), _unescape(rest)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blanks, those that end in an odd number of backslashes joined with the next."""
    parts: list[str] = []
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not parts and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            continue
        yield "".join([*parts, line])
        parts = []
    if parts:
        yield "".join(parts)


_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.?)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match.group(1)
        if code == "u":
            shown = text[match.start() : match.start() + 6]
            raise ConfigError("properties", shown, "\\u and four hexadecimal digits")
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(replace, text)


def _closest(key: str, known: list[str]) -> str | None:
    by_lower = {name.lower(): name for name in known}
    # As people write them elsewhere: record_ttl, record-ttl, recordTtl, setRecordTtl.
    plain = re.sub(r"[_.\-\s]", "", key).lower()
    for candidate in (plain, plain.removeprefix("set")):
        if candidate in by_lower:
            return by_lower[candidate]
    matches = difflib.get_close_matches(plain, by_lower, n=1, cutoff=0.7)
    return by_lower[matches[0]] if matches else None


def _endpoint_url(host: str, port: int) -> str | None:
    if not host:
        return None
    return f"https://{host}" if port == 443 else f"https://{host}:{port}"


def _client_settings(found: dict[str, Any]) -> ClientSettings:
    verify: bool | str | None = found.get("verify")
    if verify is not False:
        verify = found.get("ca_file") or None  # to verify is what happens anyway
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


def _refuse_leftovers(result: KplProperties) -> None:
    for key, closest in result.unknown:
        hint = f"; did you mean {closest}?" if closest else ""
        raise ConfigError("properties", key, f"a key of the KPL{hint}")
    for key, reason in (*result.adjusted, *result.ignored):
        raise ConfigError("properties", key, f"only keys that take effect as they stand ({reason})")
