"""What users import."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import kinesis_sdk
from kinesis_sdk import admin, common, consumer, lambda_events, metrics, producer, relay, spark, tracing
from kinesis_sdk.common import errors, once

LAZY = (kinesis_sdk, admin, common, once, lambda_events, metrics, producer, relay, spark, tracing)
"""Packages whose names are imported on first use, see `kinesis_sdk._lazy`."""


def shown_to_type_checkers(package: ModuleType) -> dict[str, str]:
    """Public names by their source: what a package re-exports (``import X as X``) or defines."""
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    names = {
        alias.name: str(node.module)
        for node in [*tree.body, *guarded.body]
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    return names | {node.name: package.__name__ for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("package", LAZY, ids=lambda package: package.__name__)
def test_type_checkers_and_the_interpreter_see_the_same_names(package: ModuleType) -> None:
    names = shown_to_type_checkers(package)
    assert sorted(names) == sorted(package.__all__) == dir(package)
    assert len(package.__all__) == len(set(package.__all__))
    for name, home in names.items():
        needed = {"kinesis_sdk.spark.source": "pyspark", "kinesis_sdk.tracing": "opentelemetry"}
        if any(home.startswith(one) and find_spec(library) is None for one, library in needed.items()):
            continue
        module = import_module(home)
        assert getattr(package, name) is getattr(module, name), name
        assert name in getattr(module, "__all__", [name]), name


@pytest.mark.parametrize("package", LAZY, ids=lambda package: package.__name__)
def test_an_unknown_name_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Consumer2'"):
        package.Consumer2  # noqa: B018


def test_a_name_is_looked_up_once() -> None:
    code = (
        "import kinesis_sdk; before = 'StreamId' in vars(kinesis_sdk); kinesis_sdk.StreamId; "
        "print(before, 'StreamId' in vars(kinesis_sdk))"
    )
    assert run(code) == "False True"


def run(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_every_error_of_the_tree_is_exported() -> None:
    kinds = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.KinesisSdkError)
    }
    assert kinds <= set(kinesis_sdk.__all__)


FOR_STRATEGY_AUTHORS = {
    "IntervalSettings",
    "Intervals",
    "LeaseObserver",
    "Plan",
    "TableView",
    "Take",
    "TakeLimits",
    "TakeReason",
}
"""Plain words that only the author of a lease strategy needs; `kinesis_sdk.consumer` alone exports them."""


def test_every_public_name_of_producer_and_consumer_is_exported_at_the_top() -> None:
    exported = set(producer.__all__) | set(consumer.__all__)
    assert exported - set(kinesis_sdk.__all__) == FOR_STRATEGY_AUTHORS


def test_importing_the_package_loads_next_to_nothing() -> None:
    code = (
        "import sys; before = set(sys.modules); import kinesis_sdk; "
        "loaded = set(sys.modules) - before - {'__future__'}; "
        "print(*sorted(loaded))"
    )
    assert run(code) == "kinesis_sdk kinesis_sdk._lazy kinesis_sdk._version"


@pytest.mark.parametrize(
    "steps",
    [
        {
            "kinesis_sdk.ProducerConfig": "kinesis_sdk.producer.producer",
            "kinesis_sdk.Producer": "kinesis_sdk.consumer asyncio",
            "kinesis_sdk.Worker": "boto3 botocore",
            "import kinesis_sdk.spark; kinesis_sdk.spark.ConnectionSettings": "pyspark pyarrow boto3",
        },
        {"import kinesis_sdk.metrics": "threading prometheus_client opentelemetry"},
        {
            "import kinesis_sdk.spark.options, kinesis_sdk.spark.planner": (
                "kinesis_sdk.producer kinesis_sdk.spark.partition"
            )
        },
    ],
)
def test_using_a_name_does_not_load_what_it_does_not_need(steps: dict[str, str]) -> None:
    """Step by step in one interpreter, whose start takes as long as a step."""
    code = "import sys; before = set(sys.modules); import kinesis_sdk\n" + "\n".join(
        f"{use}; print(*sorted(set({unwanted.split()}) & set(sys.modules) - before))"
        for use, unwanted in steps.items()
    )
    assert run(code) == ""
