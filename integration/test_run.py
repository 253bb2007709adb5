"""`kinesis-sdk run` with real processes and signals, against the fake account."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from integration.running import HANDLER, account, command
from integration.waiting import eventually
from tests import HANG

__all__ = ["account", "command"]


def all_held(account, workers):
    def check():
        owners = [lease.owner for lease in account.leases()]
        return None not in owners and len(set(owners)) == workers

    return check


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_until_now_processes_everything_and_ends(account, command):
    account.put(200)
    run = command("--until", "now", "--processes", "2")
    assert run.end() == 0
    assert run.processed() == set(range(200))
    assert "is processed" in run.log()
    assert all(lease.owner is None for lease in account.leases())


def test_until_survives_kills_of_processes_and_a_split(account, command, tmp_path):
    account.put(200)
    shard = account.kinesis.list_shards(StreamName="orders")["Shards"][0]["ShardId"]
    account.kinesis.split_shard(StreamName="orders", ShardToSplit=shard, NewStartingHashKey=str(2**125))
    account.put(200)
    config = tmp_path / "settings.toml"
    config.write_text("checkpoint_interval = 0.1\n[leases]\nfailover_time = 2\n")
    waiting = HANDLER.replace(
        "def handle(batch):",
        "def handle(batch):\n    while not os.path.exists('go'):\n        time.sleep(0.05)",
    )
    run = command("--until", "now", "--processes", "3", "--config", str(config), source=waiting)
    run.wait_until(all_held(account, 3))
    os.kill(run.children()[0], signal.SIGKILL)
    (tmp_path / "go").touch()
    assert run.end() == 0
    assert run.processed() == set(range(400))
    assert "was killed by SIGKILL; starting it again" in run.log()


def test_a_killed_process_is_replaced_under_its_id_and_no_zombie_stays(account, command):
    run = command("--processes", "2")
    run.wait_until(all_held(account, 2))
    before = run.children()
    assert len(before) == 2
    owners = {lease.owner for lease in account.leases()}
    os.kill(before[0], signal.SIGKILL)
    run.wait_until(lambda: len(run.children()) == 2 and before[0] not in run.children())
    account.put(50)
    run.wait_until(lambda: run.processed() == set(range(50)))
    run.wait_until(lambda: {lease.owner for lease in account.leases()} == owners)
    assert not Path(f"/proc/{before[0]}").exists(), "it was reaped"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs prctl")
def test_what_handlers_leave_behind_is_reaped_as_by_process_1(account, command):
    account.put(5)
    leaving = HANDLER + (
        "\nimport subprocess\ndef leaves(batch):\n"
        "    left = subprocess.check_output(['sh', '-c', 'sleep 0.2 >/dev/null & echo $!'])\n"
        "    note('left', int(left))\n"
    )
    # PR_SET_CHILD_SUBREAPER: orphans become children of the command, as those of process 1.
    program = "import ctypes; ctypes.CDLL(None).prctl(36, 1); from kinesis_sdk.cli.main import cli; cli()"
    run = command(handler="billing:leaves", source=leaving, start=("-c", program))
    run.wait_until(lambda: run.notes("left"))
    left = [int(pid) for _, pid in run.notes("left")]
    run.wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_one_signal_stops_cleanly(account, command, number, code):
    run = command("--processes", "2")
    run.wait_until(all_held(account, 2))
    # As a terminal does for Ctrl-C: the signal goes to every process of the group.
    os.killpg(run.process.pid, number)
    assert run.end() == code
    assert [lease.owner for lease in account.leases()] == [None] * 4
    assert "Traceback" not in run.log()


def test_two_signals_stop_at_once(account, command):
    account.put(50)
    run = command("--processes", "2", handler="billing:hangs")
    run.wait_until(lambda: run.notes("hangs"))
    children = run.children()
    os.killpg(run.process.pid, signal.SIGINT)
    # A second signal that came before the first was handled would be the same one.
    run.wait_until(lambda: "received SIGINT, stopping" in run.log())
    assert run.process.poll() is None, "the handler still runs"
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.end() == 130
    assert not any(is_alive(pid) for pid in children)


def test_a_handler_that_hangs_is_killed_after_the_stop_timeout(account, command):
    account.put(50)
    run = command("--stop-timeout", "1s", handler="billing:hangs")
    run.wait_until(lambda: run.notes("hangs"))
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 1
    assert "did not stop within 1 s" in run.log()


def test_no_process_outlives_a_killed_supervisor(account, command):
    run = command("--processes", "3")
    run.wait_until(all_held(account, 3))
    children = run.children()
    run.process.kill()
    run.process.wait()
    eventually(lambda: not any(map(is_alive, children)))
    assert [lease.owner for lease in account.leases()] == [None] * 4, "they stopped cleanly"


def test_a_hanging_handler_does_not_outlive_a_killed_supervisor(account, command):
    account.put(50)
    run = command("--stop-timeout", "1s", handler="billing:hangs")
    run.wait_until(lambda: run.notes("hangs"))
    children = run.children()
    run.process.kill()
    run.process.wait()
    eventually(lambda: not any(map(is_alive, children)))


def test_an_error_of_the_module_is_shown_once_with_its_traceback(account, command):
    run = command("--processes", "3", source="import json\n\ndef helper():\n    return 1 / 0\n\nhelper()\n")
    assert run.end() == 2
    log = run.log()
    assert log.count("ZeroDivisionError: division by zero") == 1
    assert 'billing.py", line 4, in helper' in log
    assert "importlib" not in log
    assert "handlers.py" not in log


FLAKY = (
    HANDLER
    + """
def flaky(batch):
    for record in batch.records:
        number = int(record.data)
        if number == 7 or (number % 10 == 0 and "retry-attempt" not in record.headers):
            raise ValueError
        note("record", number)
"""
)


def test_tiers_of_a_file_are_checked_filled_and_read(account, command, tmp_path):
    (tmp_path / "worker.toml").write_text(
        '[on_handler_error]\npolicy = "tiers"\ndelays = [1]\nattempts = 1\ndead_letters = "file:letters.jsonl"\n'
    )

    def run(*options):
        return command("--config", "worker.toml", *options, handler="billing:flaky", source=FLAKY)

    missing = run("--until", "now")
    assert missing.end() == 3
    assert "orders.retry-1" in missing.log()
    account.kinesis.create_stream(StreamName="orders.retry-1", ShardCount=1)
    account.put(100)
    filled = run("--until", "now")
    assert filled.end() == 0
    later = {7, *range(0, 100, 10)}
    assert filled.processed() == set(range(100)) - later
    tiers = run("--tiers")
    letters = tmp_path / "letters.jsonl"
    tiers.wait_until(lambda: tiers.processed() == set(range(100)) - {7} and letters.exists())
    tiers.process.send_signal(signal.SIGTERM)
    assert tiers.end() == 0
    (letter,) = map(json.loads, letters.read_text().splitlines())
    assert (letter["application"], letter["partition_key"]) == ("app", "k7")


STORED = (
    FLAKY
    + """
def stored(batch):
    for record in batch.records:
        number = int(record.data)
        batch.transaction.exec_driver_sql("CREATE TABLE IF NOT EXISTS orders (number INTEGER, key TEXT)")
        batch.transaction.exec_driver_sql("INSERT INTO orders VALUES (?, ?)", (number, record.partition_key))
    flaky(batch)
"""
)


def test_a_retry_table_and_a_sink_of_a_file_need_no_code(account, command, tmp_path):
    """Two processes, one of which is killed while rows wait: each record takes effect once, in the order of its key."""
    (tmp_path / "worker.toml").write_text(
        '[leases]\nfailover_time = 3\n[application]\nsink = "sqlite:///all.db"\n'
        '[on_handler_error]\npolicy = "tiers"\ndelays = [2, 2]\nattempts = 1\ndead_letters = "sqlite:///all.db"\n'
        'database = "sqlite:///all.db"\nkeep_order = true\n'
    )

    def orders():
        with closing(sqlite3.connect(tmp_path / "all.db")) as connection:
            return [number for (number,) in connection.execute("SELECT number FROM orders ORDER BY rowid")]

    def letters():
        with closing(sqlite3.connect(tmp_path / "all.db")) as connection:
            return connection.execute("SELECT letter FROM kinesis_sdk_dead_letters").fetchall()

    account.put(100, keys=8)
    run = command("--config", "worker.toml", "--processes", "2", handler="billing:stored", source=STORED)
    run.wait_until(lambda: len(run.processed()) >= 40)
    os.kill(run.children()[0], signal.SIGKILL)
    run.wait_until(lambda: run.processed() == set(range(100)) - {7} and len(orders()) == 99)
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 0
    found = orders()
    assert sorted(found) == [number for number in range(100) if number != 7]
    for key in range(8):
        of_key = [number for number in found if number % 8 == key]
        assert of_key == sorted(of_key)
    assert len(letters()) == 1


def test_a_change_of_a_module_restarts_the_workers(account, command, tmp_path):
    run = command("--reload", "--processes", "2")
    account.put(10)
    run.wait_until(lambda: run.processed() == set(range(10)))
    (tmp_path / "billing.py").write_text("this is no Python\n")
    run.wait_until(lambda: "starting it again when a file changes" in run.log())
    assert "SyntaxError" in run.log()
    (tmp_path / "billing.py").write_text(HANDLER.replace('note("record"', 'note("new"'))
    account.put(10)
    run.wait_until(lambda: len(run.notes("new")) == 10)
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 0


def test_every_line_names_the_worker(account, command):
    account.put(20)
    source = HANDLER + "\nimport logging\nlogging.getLogger('mine').info('imported')\n"
    run = command("--until", "now", "--processes", "2", "--log-format", "json", source=source)
    assert run.end() == 0
    lines = [json.loads(line) for line in run.log().splitlines() if line.startswith("{")]
    workers = {line["worker"] for line in lines}
    assert len(workers) == 3
    assert "supervisor" in workers
    assert {line["worker"] for line in lines if line["logger"] == "mine"} == workers - {"supervisor"}
    taken = [line for line in lines if "taken" in line["message"]]
    assert taken
    assert all(line["shard"].startswith("shardId-") and line["stream"] == "orders" for line in taken)


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=HANG) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_one_health_endpoint_for_all_processes(account, command):
    run = command("--processes", "2", "--health-port", "0")
    run.wait_until(lambda: "health endpoint at http://127.0.0.1:" in run.log())
    port = int(run.log().split("health endpoint at http://127.0.0.1:")[1].split()[0])
    run.wait_until(lambda: get(port, "/ready")[0] == 200)
    assert get(port, "/live") == (200, {"live": True, "problems": []})

    def shards():
        status, content = get(port, "/status")
        assert status == 200
        assert [process["state"] for process in content["processes"]] == ["running", "running"]
        return [
            shard["shard_id"] for process in content["processes"] for shard in process["health"]["shards"]
        ]

    run.wait_until(lambda: len(shards()) == 4)
    os.kill(run.children()[0], signal.SIGKILL)
    run.wait_until(lambda: get(port, "/ready")[0] == 503)
    assert get(port, "/live")[0] == 200, "a process that is replaced is no reason for a restart of all"
    run.wait_until(lambda: get(port, "/ready")[0] == 200)
