"""Reference pages generated from the code: the API of each package, and tables of settings and errors.

The site's hooks (`tools.docs_hooks`) call `pages`; nothing is written into the repository.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.fielddocs import field_texts
from kinesis_sdk.consumer import properties as kcl
from kinesis_sdk.consumer.config import (
    ConsumerConfig,
    CoordinationConfig,
    FailureConfig,
    LeaseConfig,
    LeaseTableConfig,
    RetrievalConfig,
)
from kinesis_sdk.producer import properties as kpl
from kinesis_sdk.producer.config import ProducerConfig
from tools import docs_differences

PACKAGES = {
    "kinesis_sdk.producer": ("Producer", "What `kinesis_sdk` exports for producing."),
    "kinesis_sdk.consumer": ("Consumer", "Workers, handlers, settings, lease stores and lease strategies."),
    "kinesis_sdk.consumer.sinks": ("Sinks", "Sinks, and what a sink of your own is made of."),
    "kinesis_sdk.testing.contracts.sinks": ("Contract of sinks", "The checks that every sink has to pass."),
    "kinesis_sdk.testing.contracts.lease_stores": (
        "Contract of lease stores",
        "The checks that every lease store has to pass.",
    ),
    "kinesis_sdk.common.records": ("Records", "Records as readers see them."),
    "kinesis_sdk.lambda_events": ("Lambda and Firehose", "Handlers for events of Lambda and Firehose."),
    "kinesis_sdk.tracing": ("Tracing", "Interceptors that make OpenTelemetry spans."),
    "kinesis_sdk.acknowledgement": (
        "Acknowledgement",
        "A handler of single records that are acknowledged in any order.",
    ),
    "kinesis_sdk.dead_letters": (
        "Dead letters",
        "Places of records that were set aside, and the hook that keeps them.",
    ),
    "kinesis_sdk.relay": ("Relay", "From stream to stream, each record once."),
    "kinesis_sdk.retries": ("Retries", "Records that fail and come again after a delay."),
    "kinesis_sdk.serialization": ("Serialization", "Codecs and schema registries."),
    "kinesis_sdk.metrics": ("Metrics", "Sinks for metrics, and the catalogue of all metrics."),
    "kinesis_sdk.admin": ("Administration", "Streams, applications, lag, and safe changes of leases."),
    "kinesis_sdk.spark": ("Spark", "Data source, sink and helpers for PySpark."),
    "kinesis_sdk.testing": ("Testing", "The fake AWS."),
    "kinesis_sdk.common": (
        "Positions and shards",
        "Positions, streams and shards, and the opening of aggregates.",
    ),
    "kinesis_sdk": (
        "Other names",
        "What else `kinesis_sdk` exports; errors have [a page of their own](errors.md).",
    ),
}
"""Title and first sentence of the page of each package."""

CONFIGS = (
    ProducerConfig,
    ConsumerConfig,
    LeaseConfig,
    LeaseTableConfig,
    RetrievalConfig,
    CoordinationConfig,
    FailureConfig,
)


def pages() -> Iterator[tuple[str, str]]:
    """Yield path and Markdown of each generated page, in the order of the navigation."""
    yield "reference/settings.md", settings_page()
    yield "reference/errors.md", errors_page()
    yield "reference/differences.md", docs_differences.page()
    shown: set[str] = set()
    for package in PACKAGES:
        places = [_place(package, name) for name in public_names(package)]
        path = f"reference/{package.removeprefix('kinesis_sdk.').replace('.', '-')}.md"
        yield path, api_page(package, [place for place in places if place not in shown])
        shown.update(places)


def api_page(package: str, places: Iterable[str]) -> str:
    """Return the page of a package, with the documentation of these objects from their docstrings."""
    title, sentence = PACKAGES[package]
    lines = [f"# Reference: {title}", "", f"{sentence} Import them from `{_shown(package)}`.", ""]
    for place in places:
        lines += [f"::: {place}", ""]
    return "\n".join(lines)


def public_names(package: str) -> list[str]:
    """Return the public names of a package (those it exports), or the public classes of a module."""
    module = importlib.import_module(package)
    if hasattr(module, "__all__"):
        return [
            str(name)
            for name in module.__all__
            if package != "kinesis_sdk" or not (name == "__version__" or name in _error_names())
        ]
    return [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == package and not name.startswith("_")
    ]


def _error_names() -> set[str]:
    """Return the names of the errors, which `errors_page` lists."""
    return {error.__name__ for error in error_classes()}


def _shown(package: str) -> str:
    """Return the package from which users import another package's names."""
    exported = ("kinesis_sdk.producer", "kinesis_sdk.consumer", "kinesis_sdk.common.records")
    return "kinesis_sdk" if package in exported else package


def _place(package: str, name: str) -> str:
    """Return the full path of a name, in the module that defines it."""
    try:
        value = getattr(importlib.import_module(package), name)
    except ImportError:
        # An optional package is missing here, but the import statement tells where the name is defined.
        return f"{package}.{name}"
    module = getattr(value, "__module__", "")
    defined = module.startswith("kinesis_sdk") and getattr(value, "__name__", "") == name
    return f"{module}.{name}" if defined else f"{package}.{name}"


def settings_page() -> str:
    """Return the table of all settings, with their names in the KPL and the KCL."""
    lines = [
        "# Reference: settings",
        "",
        "Durations are seconds, sizes are bytes. The second name is the key of a KPL's or a KCL's properties file, which may have another",
        "unit there; `ProducerConfig.from_properties` and `ConsumerConfig.from_properties` convert it.",
        "",
    ]
    java: dict[str, list[str]] = {}
    for key, field in kpl.KEYS.items():
        if field.part == "config":
            java.setdefault(f"ProducerConfig.{field.name}", []).append(key)
    for key, target in kcl.KEYS.items():
        if target.part == "config":
            java.setdefault(f"ConsumerConfig.{target.name}", []).append(key)
    for config in CONFIGS:
        lines += [
            f"## {config.__name__}",
            "",
            "| setting | default | KPL or KCL | meaning and range |",
            "|---|---|---|---|",
        ]
        texts = field_texts(config)
        owner = "ProducerConfig" if config is ProducerConfig else "ConsumerConfig"
        for field in dataclasses.fields(config):
            # `ConsumerConfig.with_fields` sets fields of any group by name alone, so the keys are only the names of fields.
            keys = [
                key
                for place in java
                if place.split(".")[-1] == field.name and place.startswith(owner)
                for key in java[place]
            ]
            shown = ", ".join(f"`{key}`" for key in keys)
            lines.append(
                f"| `{field.name}` | {_default(field)} | {shown} | {_cell(texts.get(field.name, ''))} |"
            )
        lines.append("")
    return "\n".join(lines)


def _default(field: dataclasses.Field[object]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{field.default!r}`"
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
        return f"`{type(value).__name__}()`" if dataclasses.is_dataclass(value) else f"`{value!r}`"
    return "required"


def errors_page() -> str:
    """Return the table of all errors, in the order of their tree."""
    lines = [
        "# Reference: errors",
        "",
        "All errors derive from `KinesisSdkError`. `retryable` says whether repeating the call later may succeed.",
        "",
        "| error | derives from | retryable | when |",
        "|---|---|---|---|",
    ]
    for error in error_classes():
        parents = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
        summary = (inspect.getdoc(error) or "").split("\n\n", 1)[0]
        lines.append(
            f"| `{error.__name__}` | {parents} | {'yes' if error.retryable else 'no'} | {_cell(summary)} |"
        )
    return "\n".join(lines) + "\n"


def error_classes(root: type[KinesisSdkError] = KinesisSdkError) -> Iterable[type[KinesisSdkError]]:
    """Yield a class and the errors below it, depth first."""
    yield root
    for child in root.__subclasses__():
        if child.__module__ == KinesisSdkError.__module__:
            yield from error_classes(child)


def _cell(text: str) -> str:
    """Return a text as a cell of a table."""
    text = re.sub(r"``([^`]+)``", r"`\1`", " ".join(text.split()))
    return text.replace("|", "\\|")
