"""The reference has every public name: the build of the site only shows what `tools.docs_reference` lists."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache

import kinesis_sdk
from tools import docs_reference

NOT_SHOWN = {
    "kinesis_sdk.consumer.fetch": "parts of a worker",
    "kinesis_sdk.consumer.shard_sync": "parts of a worker",
    "kinesis_sdk.common.once": "for readers of streams: Spark, Lambda, tools; kinesis_sdk.admin exports first_copy",
    "kinesis_sdk.consumer.leases": "for tools; what users need of it, kinesis_sdk.consumer exports",
    "kinesis_sdk.consumer.leases.java": "for tools",
    "kinesis_sdk.consumer.engine": "for the pytest plugin and the command line",
    "kinesis_sdk.consumer.sql": "for tools",
    "kinesis_sdk.consumer.leases.strategies": "parts of a worker; kinesis_sdk.consumer exports the strategies",
    "kinesis_sdk.verify": "for the command `kinesis-sdk verify`, and for docs/costs.md",
    "kinesis_sdk.common.aggregate_reader": "kinesis_sdk.common exports deaggregate",
    "kinesis_sdk.common.base64coding": "parts of producer and consumer",
    "kinesis_sdk.common.transport": "parts of producer and consumer",
    "kinesis_sdk.kclpy.kcl": "the names of amazon_kclpy, whose documentation describes them",
}
"""Modules with an `__all__` that the reference leaves out, and why."""

PAGES = dict(docs_reference.pages())


@cache
def modules() -> list[str]:
    """Modules that say what they export."""
    found = ["kinesis_sdk"]
    for module in pkgutil.walk_packages(kinesis_sdk.__path__, "kinesis_sdk."):
        spec = module.module_finder.find_spec(module.name, None)  # type: ignore[call-arg]
        source = spec.loader.get_source(module.name) if spec and spec.loader else ""  # type: ignore[attr-defined]
        if re.search(r"^(?: {4})?__all__\b", source, re.MULTILINE):
            found.append(module.name)
    return found


def test_every_exported_name_is_in_the_reference() -> None:
    entry = re.compile(r"^::: [\w.]+\.(\w+)$|^\| `(\w+)` \|", re.MULTILINE)
    listed = {name for page in PAGES.values() for names in entry.findall(page) for name in names}
    for module in modules():
        is_shown = module in docs_reference.PACKAGES
        assert is_shown != (module in NOT_SHOWN), f"list {module} in PACKAGES, or in NOT_SHOWN with a reason"
        if is_shown:
            assert {*importlib.import_module(module).__all__} - listed <= {"__version__"}, module


def test_nothing_is_listed_that_is_gone() -> None:
    assert set(NOT_SHOWN) <= set(modules())
