"""The console as a user starts it: the command beside the fake AWS with real workers, and the demo with its split and its crash."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest

from integration.commands import CLI, execute
from integration.waiting import eventually
from kinesis_sdk.testing import start_server_process
from tests import HANG
from tests.cli.web.generated import HOSTILE


@contextmanager
def console(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the command, and return it with the address that it prints."""
    with subprocess.Popen(
        [*CLI, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                found = re.search(r"http://localhost:\d+/\S*", line)
                if found:
                    yield process, found[0]
                    break
            else:
                raise AssertionError("the command printed no address")
        finally:
            process.kill()


@pytest.fixture(scope="module")
def orders() -> Iterator[str]:
    """A fake AWS with the stream ``orders``, hostile records, and the lease table that a worker left behind."""
    with start_server_process("--create-stream", "orders:2") as server:
        kinesis = boto3.client("kinesis", endpoint_url=server.endpoint_url)
        for n in range(20):
            kinesis.put_record(StreamName="orders", PartitionKey=f"{n} {HOSTILE}", Data=HOSTILE.encode())
        with working(server.endpoint_url) as seen:
            eventually(lambda: len(seen) >= 20)
        yield server.endpoint_url


@contextmanager
def working(endpoint: str) -> Iterator[list[Any]]:
    """Run a worker, and return what it has processed."""
    from kinesis_sdk.consumer import ConsumerConfig, Worker

    seen: list[Any] = []
    worker = Worker(
        "orders",
        application_name="billing",
        handler=lambda batch: seen.extend(batch.records),
        config=ConsumerConfig(initial_position="TRIM_HORIZON"),
        endpoint_url=endpoint,
        worker_id=f"zone|{HOSTILE}",
    )
    with worker:
        yield seen


def test_the_command_shows_a_table_and_changes_it(open_page, keep_picture, orders: str) -> None:
    arguments = ("ui", "billing", "--stream", "orders", "--port", "0", "--allow-changes")
    with working(orders) as seen, console(*arguments, "--endpoint-url", orders) as (process, url):
        page = open_page(url)
        page.get_by_text("2 shards by").wait_for()
        where = page.locator(".where").inner_text()
        assert where.startswith(("account ", "us-east-1")), where
        assert where.endswith(f"us-east-1 · {orders}"), where
        page.get_by_role("link", name="0000").click()
        page.get_by_label("Where to begin").select_option("horizon")
        page.get_by_role("button", name="Read", exact=True).click()
        page.locator("table.records tbody tr").first.wait_for()
        assert HOSTILE.replace("\u202e", "\\u202e") in page.locator("table.records").inner_text()
        page.get_by_label("Target").fill("TRIM_HORIZON")
        page.get_by_role("button", name="Show what it does").click()
        page.get_by_text("kinesis-sdk leases rewind billing").wait_for()
        before = len(seen)
        page.get_by_role("button", name="Confirm and write").click()
        page.locator(".outcome.good").get_by_text("noticed after").wait_for()
        eventually(lambda: len(seen) > before)
        keep_picture(page, "live-shard")
        page.get_by_role("link", name="Stream").click()
        page.get_by_text("2 open shards").wait_for()
        page.get_by_role("link", name="Applications").click()
        page.get_by_role("link", name="billing").wait_for()
        assert page.evaluate("window.hacked") is None
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG) == 130, "Ctrl-C ends it although a page is open"


def test_a_poison_record_is_opened_tried_again_and_left_out_by_buttons(
    open_page, keep_picture, orders: str
) -> None:
    from kinesis_sdk.consumer import ConsumerConfig, RetryBatch, Worker

    dead: list[bytes] = []
    processed: list[bytes] = []

    def handle(batch: Any) -> None:
        if any(record.data.startswith(b"poison") for record in batch.records):
            raise ValueError("cannot read the amount 'twelve'")
        processed.extend(record.data for record in batch.records)

    policy = RetryBatch(
        initial_delay=0.2, max_delay=3600, dead_letter=lambda poison: dead.append(poison.record.data)
    )
    config = ConsumerConfig(initial_position="TRIM_HORIZON", on_handler_error=policy)
    kinesis = boto3.client("kinesis", endpoint_url=orders)
    for data in (b"good 1", b"poison 2", b"good 3"):
        put = kinesis.put_record(StreamName="orders", PartitionKey="key", Data=data)
    worker = Worker(
        "orders",
        application_name="poisoned",
        handler=handle,
        config=config.with_fields(failover_time=3.0),
        endpoint_url=orders,
    )
    arguments = ("ui", "poisoned", "--stream", "orders", "--port", "0", "--allow-changes")
    with worker, console(*arguments, "--endpoint-url", orders) as (_, url):
        page = open_page(f"{url}#/shard/poisoned/{put['ShardId']}")
        card = page.get_by_role("region", name="Failing handler")
        card.get_by_role("button", name="Skip this record").wait_for()
        assert "ValueError: cannot read the amount 'twelve'" in card.inner_text()
        card.get_by_role("button", name="Open the record").click()
        page.locator("table.records").get_by_text("poison 2").wait_for()
        card.get_by_text("the same as commands").click()
        assert "kinesis-sdk leases skip-record poisoned" in card.inner_text()
        keep_picture(page, "live-poison")
        change = page.get_by_role("region", name="Change", exact=True)
        for button, outcome in (("Retry now", "Done after"), ("Skip this record", "after")):
            assert dead == [], "nothing is written before it is confirmed"
            card.get_by_role("button", name=button).click()
            change.get_by_role("button", name="Confirm and write").click()
            change.locator(".outcome.good").get_by_text(outcome).wait_for()
        eventually(lambda: dead == [b"poison 2"] and {b"good 1", b"good 3"} <= {*processed})
        card.wait_for(state="hidden")


def test_a_port_that_is_taken_is_an_error_of_one_line(orders: str) -> None:
    with console("ui", "--port", "0", "--endpoint-url", orders) as (_, url):
        port = url.rstrip("/").rpartition(":")[2]
        second = execute([*CLI, "ui", "--port", port])
    assert second.returncode == 3
    assert second.stderr.startswith(f"Error: cannot listen on 127.0.0.1 port {port}")


def test_the_demo_is_watched(open_page, keep_picture) -> None:
    with console("demo", "--ui", "--ui-port", "0", "--duration", "25s") as (process, url):
        page = open_page(url)
        # The split makes two shards of one, and the survivor of the kill owns all of them.
        page.get_by_text("new shard").first.wait_for()
        keep_picture(page, "live-demo-split")
        page.get_by_text("new shard").first.wait_for()
        page.get_by_text("expired").first.wait_for()
        keep_picture(page, "live-demo")
        assert process.stdout is not None
        output = process.stdout.read()
        assert process.wait(HANG) == 0, output
        assert "PASSED" in output
