"""Blocks of the pages that are neither Python nor commands: settings, SQL, policies. Each is read by what reads it in use.

A block of a language that no test claims fails here: `CLAIMED` says which test reads it.
"""

from __future__ import annotations

import configparser
import json
import sqlite3
from pathlib import Path

import pytest

from kinesis_sdk import ConsumerConfig, LeaseConfig, SqlLeaseStore
from kinesis_sdk.admin.exporter import FleetMetrics
from kinesis_sdk.admin.exporter_http import ExporterPages
from kinesis_sdk.cli.output import ExitCode
from kinesis_sdk.cli.run.command import run
from kinesis_sdk.cli.run.config_file import read_config, read_file
from kinesis_sdk.cli.run.policy_table import PolicyPlace, tiers_of
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import BisectBatch, CircuitBreaker
from kinesis_sdk.consumer.leases import Conflict, Lease
from kinesis_sdk.multilang.settings import parse_settings
from tests.cli.tui.views import make_view
from tests.readme import DOCS, PAGES, ROOT, blocks

CLAIMED = {
    ("docs/dynamodb-streams.md", "json"): "tests/test_page_blocks.py::test_a_policy_has_statements",
    ("docs/kclpy.md", "properties"): "tests/test_page_blocks.py::test_the_properties_of_a_daemon_are_read",
    (
        "docs/lambda.md",
        "text",
    ): "tests/lambda_events/test_docs.py::test_the_block_for_the_cdk_names_arguments_of_the_cdk",
    (
        "docs/kubernetes.md",
        "yaml",
    ): "integration/examples/test_manifests.py::test_the_deployment_of_a_zone_is_valid",
    ("docs/lambda.md", "yaml"): "tests/lambda_events/test_docs.py::test_the_template_is_what_lambda_accepts",
    ("docs/lease-stores.md", "sql"): "tests/test_page_blocks.py::test_the_table_of_leases_can_be_queried",
    ("docs/monitoring.md", "json"): "tests/test_page_blocks.py::test_the_answer_for_keda_has_these_names",
    (
        "docs/run.md",
        "ini",
    ): "tests/test_page_blocks.py::test_the_service_of_systemd_has_a_command_that_exists",
    ("docs/retries.md", "toml"): "tests/test_page_blocks.py::test_the_settings_of_tiers_are_read",
    ("docs/run.md", "toml"): "tests/test_page_blocks.py::test_the_settings_of_run_are_read",
    ("docs/runbooks.md", "text"): "tests/cli/test_runbooks.py::test_every_runbook_is_tried_here_and_complete",
    (
        "docs/serialization.md",
        "json",
    ): "tests/serialization/test_docs.py::test_the_policy_names_the_calls_that_are_made",
    **{
        (f"docs/tutorial-{page}.md", "text"): "integration/test_tutorial.py::test_the_tutorial"
        for page in ("1-produce", "2-consume", "3-spark")
    },
}
"""Test that reads the blocks of a language on a page."""

NOT_READ = {
    (
        "docs/spark-sql.md",
        "sql",
    ): "integration/spark/test_sql.py runs such statements, and not the page's text",
}
"""Blocks that no test reads, and why."""

BY_OTHERS = {
    "python": "tests/test_readme.py::test_every_python_block_is_run",
    "sh": "tests/test_page_commands.py",
    "": "commands, which tests/test_page_commands.py parses, with what they print; and drawings",
}


def test_every_block_is_claimed() -> None:
    found = {
        (page.relative_to(ROOT).as_posix(), block.language)
        for page in PAGES
        for block in blocks(page=page)
        if block.file is None and block.language not in BY_OTHERS
    }
    assert found - set(NOT_READ) == set(CLAIMED), "name the test that reads the block"
    assert set(NOT_READ) <= found
    for (page, _), test in CLAIMED.items():
        path, _, function = test.partition("::")
        source = (ROOT / path).read_text(encoding="utf-8")
        assert f"def {function}(" in source, test
        assert Path(page).stem in source, f"{path} does not mention {page}"


def test_the_settings_of_run_are_read(tmp_path: Path) -> None:
    settings, policy = blocks("toml", DOCS / "run.md")
    path = tmp_path / "billing.toml"
    path.write_text(settings.text, encoding="utf-8")
    assert read_config(str(path)) == ConsumerConfig(
        initial_position="TRIM_HORIZON", max_threads=8, leases=LeaseConfig(failover_time=20)
    )
    path.write_text(policy.text, encoding="utf-8")
    found = read_config(str(path)).on_handler_error
    assert isinstance(found, BisectBatch)
    assert (found.attempts, found.retry_only[0]) == (3, ConnectionError)


def test_the_settings_of_tiers_are_read(tmp_path: Path) -> None:
    in_streams, in_table = blocks("toml", DOCS / "retries.md")
    path = tmp_path / "worker.toml"
    path.write_text(in_streams.text, encoding="utf-8")
    found = read_file(str(path), place=PolicyPlace(stream="orders")).config.on_handler_error
    assert isinstance(found, CircuitBreaker)
    assert [one.delivery_delay for one in tiers_of(found)] == [60, 600, 3600]
    path.write_text(in_table.text, encoding="utf-8")
    assert read_file(str(path)).application.sink == "postgresql+psycopg://billing@db/billing"


def test_the_service_of_systemd_has_a_command_that_exists() -> None:
    (block,) = blocks("ini", DOCS / "run.md")
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # as configparser's documentation says
    unit.read_string(block.text)
    service = unit["Service"]
    command = service["ExecStart"].split()
    assert command[0].endswith("/kinesis-sdk")
    options = [one for one in command[2:] if not one.startswith("/")]
    arguments = [one for one in options if one != "--config"]
    parsed = run.make_context("run", [*arguments, "--app", "billing", "--stream", "orders"])
    assert parsed.params["is_factory"]
    assert parsed.params["stop_timeout"] < float(service["TimeoutStopSec"])
    assert int(service["RestartPreventExitStatus"]) == ExitCode.USAGE


def test_the_table_of_leases_can_be_queried(tmp_path: Path) -> None:
    """The statement of the page, on a table with leases of two applications."""
    (block,) = blocks("sql", DOCS / "lease-stores.md")
    path = tmp_path / "leases.db"
    for application in ("billing", "search"):
        store = SqlLeaseStore(f"sqlite:///{path}", application)
        store.ensure_ready()
        lease = Lease(lease_key=f"shardId-of-{application}", checkpoint=ExtendedSequenceNumber("7", 2))
        assert store.create_if_absent(lease)
        assert not isinstance(store.take(lease, "worker-1"), Conflict)
        store.close()
    database = sqlite3.connect(path)
    cursor = database.execute(block.text)
    names = [column[0] for column in cursor.description]
    (row,) = [dict(zip(names, row, strict=True)) for row in cursor]
    database.close()
    assert (row["lease_key"], row["lease_owner"]) == ("shardId-of-billing", "worker-1")
    assert (str(row["checkpoint"]), row["checkpoint_sub"]) == ("7", 2)


@pytest.mark.parametrize("page", ["dynamodb-streams.md"])
def test_a_policy_has_statements(page: str) -> None:
    (block,) = blocks("json", DOCS / page)
    policy = json.loads(block.text)
    assert policy["Version"] == "2012-10-17"
    for statement in policy["Statement"]:
        assert statement["Effect"] == "Allow"
        assert statement["Action"]
        assert statement["Resource"]


def test_the_properties_of_a_daemon_are_read() -> None:
    (block,) = blocks("properties", DOCS / "kclpy.md")
    settings = parse_settings(block.text)
    assert settings.words == ("python3", "my_app.py")
    assert (settings.application_name, settings.stream) == ("billing", "orders")
    assert settings.config.initial_position == "TRIM_HORIZON"
    assert settings.notes == ()


def test_the_answer_for_keda_has_these_names() -> None:
    block = next(block for block in blocks("json", DOCS / "monitoring.md"))
    metrics = FleetMetrics(["billing"])
    metrics.update(make_view())
    status, _, body = ExporterPages(metrics).page("/lag/billing")
    assert status == 200
    shown, answered = json.loads(block.text), json.loads(body)
    assert {name: type(value) for name, value in shown.items()} == {
        name: type(value) for name, value in answered.items()
    }
