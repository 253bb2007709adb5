"""Programs that end by themselves: each runs as its docstring says, and has the effect that it shows."""

from __future__ import annotations

import re
import signal
import sqlite3
import sys
from pathlib import Path

import pytest

from integration.examples.support import EXAMPLES, TIMEOUT, Account
from integration.spark.environments import NEWEST, CannotRunSparkError, prepare
from integration.waiting import eventually
from kinesis_sdk.testing import Fault


def test_asyncio(account: Account, tmp_path: Path) -> None:
    account.create_stream("orders", 2)
    printed = account.run("asyncio_pipeline.py", folder=tmp_path)
    assert "stored 1000 records in 2 shards" in printed
    assert sum(map(int, re.findall(r"^processed (\d+) records of", printed, re.MULTILINE))) == 1000
    assert len(account.records("orders")) == 1000


def test_order_per_key_although_entries_fail(account: Account, tmp_path: Path) -> None:
    account.create_stream("accounts", 2)
    number = account.aws.faults.add(Fault(kind="partial", operation="PutRecords", probability=0.3))
    printed = account.run("order_per_key.py", folder=tmp_path)
    assert account.aws.faults.fired().get("partial", 0) > 0, number
    assert "stored 1000 changes" in printed
    assert "20 of 20 accounts saw their changes once and in order" in printed


def test_dead_letters(account: Account, tmp_path: Path) -> None:
    account.create_stream("orders", 2)
    account.create_stream("orders-dead", 1)
    printed = account.run("dead_letter.py", folder=tmp_path)
    assert f"total: {sum(range(100)) - 30 - 70}" in printed
    letters = account.records("orders-dead")
    assert [letter.data for letter in letters] == [b"broken", b"broken"]
    assert all(letter.headers["retry-origin"].startswith(b"orders/shardId-") for letter in letters)
    assert all(letter.headers["retry-error"] == b"JSONDecodeError" for letter in letters)


def test_retries_with_delays(account: Account, tmp_path: Path) -> None:
    account.create_stream("orders", 2)
    printed = account.run("retry_tiers.py", folder=tmp_path)
    assert "orders: 99" in printed, "one fails in every tier"
    database = sqlite3.connect(tmp_path / "retried.db")
    letters = database.execute("SELECT data FROM kinesis_sdk_dead_letters").fetchall()
    database.close()
    assert letters == [(b"77",)]


def counted(path: Path) -> int:
    if not path.exists():
        return 0
    database = sqlite3.connect(path)
    try:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'totals'").fetchone():
            return 0
        return int(database.execute("SELECT coalesce(sum(count), 0) FROM totals").fetchone()[0])
    finally:
        database.close()


def test_exactly_once_although_workers_are_killed(account: Account, tmp_path: Path) -> None:
    account.create_stream("orders", 2)
    for _ in range(3):
        account.run("exactly_once_sqlite.py", "put", folder=tmp_path)
    database = tmp_path / "totals.db"
    killed = 0
    for _ in range(2):
        before = counted(database)
        process = account.start(
            sys.executable, EXAMPLES / "exactly_once_sqlite.py", "consume", folder=tmp_path
        )
        try:
            eventually(lambda: counted(database) > before or process.poll() is not None)  # noqa: B023
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=TIMEOUT)
        killed += process.returncode == -signal.SIGKILL
        account.run("exactly_once_sqlite.py", "put", folder=tmp_path)
    assert killed >= 1, "no worker was killed in the middle"
    assert "records counted: 5000" in account.run("exactly_once_sqlite.py", "consume", folder=tmp_path)
    assert counted(database) == 5000
    assert "records counted: 5000" in account.run("exactly_once_sqlite.py", "show", folder=tmp_path)


def test_a_sink_of_your_own(account: Account, tmp_path: Path) -> None:
    account.create_stream("orders", 2)
    for _ in range(2):
        printed = account.run("custom_sink.py", folder=tmp_path)
    assert "'customer-0': 20" in printed
    assert counted(tmp_path / "totals.db") == 200


def test_lambda(account: Account, tmp_path: Path) -> None:
    account.create_stream("orders", 2)
    printed = account.run("lambda_function.py", folder=tmp_path)
    assert "response: {'batchItemFailures': []}" in printed
    items = re.findall(r"^item: (orders/shardId-\S+) (.*)$", printed, re.MULTILINE)
    assert len(items) == 3
    assert sorted(value for _, value in items if value.startswith("{'N'")) == ["{'N': '12'}", "{'N': '30'}"]
    assert sum("JSONDecodeError" in value for _, value in items) == 1


def test_lambda_reports_the_first_record_that_failed(account: Account, tmp_path: Path) -> None:
    """The table is throttled at the second Kinesis record; the same event delivered again writes each order once."""
    account.create_stream("orders", 1)
    kinesis = account.client("kinesis")
    for total in (1, 2, 3):
        kinesis.put_record(StreamName="orders", PartitionKey="k", Data=b'{"total": %d}' % total)
    account.client("dynamodb").create_table(
        TableName="payments",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    account.aws.faults.add(
        Fault(
            kind="error",
            operation="PutItem",
            code="ValidationException",
            message="the table is not well",
            status=400,
            after=1,
            count=1,
        )
    )
    program = tmp_path / "program.py"
    program.write_text(
        "import lambda_function as f\n"
        "event = f.event_of('orders')\n"
        "numbers = [record['kinesis']['sequenceNumber'] for record in event['Records']]\n"
        "failed = f.handler(event, None)['batchItemFailures']\n"
        "assert failed == [{'itemIdentifier': numbers[1]}], failed\n"
        "event['Records'] = event['Records'][1:]\n"
        "assert f.handler(event, None) == {'batchItemFailures': []}\n"
        "assert f.handler(event, None) == {'batchItemFailures': []}\n"
    )
    process = account.start(
        sys.executable, program, folder=tmp_path, PYTHONPATH=f"{EXAMPLES}:{account.environment['PYTHONPATH']}"
    )
    printed, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, printed
    assert printed.count("was written before: orders/shardId-") == 2
    items = account.client("dynamodb").scan(TableName="payments")["Items"]
    assert sorted(item["total"]["N"] for item in items) == ["1", "2", "3"]


def test_the_notebook(account: Account, tmp_path: Path) -> None:
    """Jupytext makes the notebook, and a kernel runs its cells."""
    jupytext = pytest.importorskip("jupytext")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = jupytext.read(EXAMPLES / "flights_notebook.py")
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) == 6
    nbclient.NotebookClient(
        notebook, timeout=TIMEOUT, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    printed = "".join(output.get("text", "") for cell in cells for output in cell.outputs)
    assert "20,000 flights in " in printed
    assert "20,000 flights of " in printed
    assert (tmp_path / "late.png").read_bytes().startswith(b"\x89PNG")
    kinds = {kind for cell in cells for output in cell.outputs for kind in output.get("data", {})}
    assert "image/png" in kinds, "the chart is shown in the notebook"


def test_the_spark_job(account: Account, tmp_path: Path) -> None:
    try:
        python = prepare(NEWEST)
    except CannotRunSparkError as error:
        pytest.skip(str(error))
    process = account.start(
        python,
        EXAMPLES / "flights_pipeline.py",
        "--limit",
        "2000",
        "--shards",
        "2",
        folder=tmp_path,
        PYSPARK_PYTHON=str(python),
    )
    printed, _ = process.communicate(timeout=900)
    assert process.returncode == 0, printed[-4000:]
    assert "put 2,000 flights" in printed
    assert "read 2,000 flights back" in printed
    assert (tmp_path / "flights.png").read_bytes().startswith(b"\x89PNG")


def test_every_program_has_a_test_and_says_how_to_run_it() -> None:
    here = Path(__file__).parent
    root = here.parents[1]
    elsewhere = [
        root / "integration" / "java" / "kpl" / "test_migration.py",
        root / "integration" / "java" / "install.py",
        root / "tests" / "test_grafana.py",
    ]
    files = [*here.glob("test_*.py"), *elsewhere]
    tests = "\n".join(path.read_text() for path in files)
    index = (EXAMPLES / "README.md").read_text()
    for path in sorted(EXAMPLES.rglob("*")):
        if path.is_dir() or path.name == "README.md" or "__pycache__" in path.parts:
            continue
        assert path.name in tests, f"no test runs {path.name}"
        name = path.relative_to(EXAMPLES)
        assert f"]({name})" in index or f"[{name.parts[0]}/](" in index, f"README.md does not list {name}"
        # Programs for other libraries need what the page about migration names for each.
        explained = name.parts[0] == "migration" or path.name in ("flights_notebook.py", "gunicorn.conf.py")
        if path.suffix == ".py" and not explained:
            text = path.read_text()
            assert "AWS" in text.split('"""')[1], f"{name} does not say how to run it"
