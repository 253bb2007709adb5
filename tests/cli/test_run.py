"""Parts of `kinesis-sdk run` that need no process: options, settings, files, imports, log, health of all processes."""

from __future__ import annotations

import importlib
import json
import logging
import sys
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from random import Random
from unittest.mock import MagicMock

import pytest

from kinesis_sdk.admin import Connection
from kinesis_sdk.cli.options import ConnectionOptions
from kinesis_sdk.cli.output import ExitCode
from kinesis_sdk.cli.run import processes as processes_module
from kinesis_sdk.cli.run.config_file import config_from, read_config
from kinesis_sdk.cli.run.handlers import HandlerNotFoundError, load_handler
from kinesis_sdk.cli.run.health import ProcessHealth, SupervisorHealth, live_problems, ready_problems
from kinesis_sdk.cli.run.logs import JsonFormatter, _NameWorker
from kinesis_sdk.cli.run.processes import Processes, describe_exit
from kinesis_sdk.cli.run.settings import RunSettings
from kinesis_sdk.cli.run.supervisor import Outcome, SlotState, Supervisor
from kinesis_sdk.cli.run.watch import FileWatcher, roots_of
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.log_fields import log_fields
from kinesis_sdk.common.page_server import Page
from kinesis_sdk.consumer import ConsumerConfig
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.cli.invoking import invoke

RUN = ["run", "app:handle", "--stream", "orders", "--app", "billing"]


# Options and settings


STREAM, APP = ["--stream", "orders"], ["--app", "billing"]
LEASE_TABLE, STORE, FAN_OUT = "[a-zA-Z0-9_.-]{3,255}", "1 to 255 characters", "[a-zA-Z0-9_.-]{1,128}"
FILES = {"fan-out.toml": "[retrieval]\nretrieval_mode = 'fanout'\n"}
IN_SQLITE = ["--lease-store", "sqlite:///leases.db"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["app:handle", *STREAM, *APP, "--processes", "0"], "--processes"),
        (["app:handle", *STREAM, *APP, "--until", "soon"], "--until"),
        (["app:handle", *STREAM, *APP, "--health-port", "70000"], "--health-port"),
        (["app:handle", *STREAM, *APP, "--initial-position", "BEGINNING"], "--initial-position"),
        (["app:handle", *STREAM, *APP, "--config", "/nowhere.toml"], "--config"),
        (["app:handle", *STREAM, *APP, "--log-level", "LOUD"], "--log-level"),
        # Names of the application: what its lease table, another store and a fan-out consumer accept
        *(
            (["app:handle", *STREAM, "--app", name], LEASE_TABLE)
            for name in ("a b", "ab", "x" * 256, "größe")
        ),
        *((["app:handle", *STREAM, *IN_SQLITE, "--app", name], STORE) for name in ("", "x" * 256)),
        *(
            (["app:handle", *STREAM, *IN_SQLITE, "--config", "fan-out.toml", "--app", name], FAN_OUT)
            for name in ("a b", "x" * 129)
        ),
        # The source is a stream or a table
        (["app:handle", *APP], "either --stream or --dynamodb-table"),
        (["app:handle", *APP, *STREAM, "--dynamodb-table", "orders"], "either --stream or --dynamodb-table"),
        (["app:handle", *APP, "--dynamodb-table", "a b"], "a table name"),
        *(
            ([name, *STREAM, *APP], "expected module:attribute")
            for name in ("app", "app:", ":handle", "my-app:handle", "app:1")
        ),
        (["app:handle", *STREAM, *APP, "--lease-store", "leases.db"], "lease_table.lease_store='leases.db'"),
        (
            ["app:handle", *STREAM, *APP, "--lease-store", "memory://", "--processes", "2"],
            "memory:// works with one process only",
        ),
    ],
)
def test_what_is_refused_before_anything_is_called(tmp_path, monkeypatch, arguments, named):
    monkeypatch.setattr(ConnectionOptions, "connect", lambda _: MagicMock(spec=[]))  # nothing can be called
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    result = invoke("run", *arguments, code=2)
    assert named in result.output
    assert ("app=" in result.output) == (named in (LEASE_TABLE, STORE, FAN_OUT))
    assert not (tmp_path / "leases.db").exists()


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["lag"], []),
        (["leases", "list"], []),
        (["leases", "rewind"], ["--to", "-15m"]),
        (["worker", "list"], []),
        (["balance"], []),
        (["top"], ["--json"]),
        (["exporter"], []),
    ],
)
def test_other_commands_reject_a_name_that_no_application_has_before_anything_is_called(command, options):
    # There is no such region, and no connection to it: a test that connects fails.
    for arguments, named in ((["a b"], "application='a b'"), (["billing", "--table", "a b"], "table='a b'")):
        result = invoke(*command, *arguments, *options, "--region", "nowhere-1", code=2)
        assert named in result.output or "No such option: --table" in result.output


def test_a_stream_that_does_not_exist_is_reported_before_the_lease_table_is_created(monkeypatch):
    aws = FakeAws(clock=VirtualClock())
    aws.client("kinesis").create_stream(StreamName="orders", ShardCount=1)
    connection = Connection(clients={"kinesis": aws.client("kinesis")})
    monkeypatch.setattr(ConnectionOptions, "connect", lambda _: connection)
    monkeypatch.setattr("kinesis_sdk.cli.run.logs.configure_logging", lambda *_: None)  # of the whole process
    started = []
    monkeypatch.setattr(Processes, "run", lambda self: started.append(self) or Outcome(ExitCode.DONE))
    result = invoke(*RUN, "--stream", "nope", code=3)
    assert "nope" in result.stderr
    assert started == []
    result = invoke(*RUN, "--json")
    assert len(started) == 1
    (ended,) = map(json.loads, result.stdout.splitlines())
    assert (ended["event"], ended["exit_code"], ended["message"]) == ("ended", 0, None)


class Reporting:
    """A worker process as its supervisor sees it."""

    number, pid, error, reports = 1, 4711, None, 0

    def __init__(self, *reports):
        self.sent = list(reports)

    def read(self):
        while self.sent:
            yield {"message": "no such module", "event": self.sent.pop(0)}

    def close(self):
        """Nothing is open."""


@pytest.mark.parametrize(
    ("reports", "code", "events"),
    [
        (["loaded", "started"], 10, ["process-started", "consuming", "process-ended"]),
        (["failed"], 2, ["process-ended"]),
    ],
)
def test_a_process_has_started_once_its_handler_is_imported(reports, code, events, caplog):
    told = []
    supervisor = Supervisor(1, stop_timeout=5.0, reloads=False, rng=Random(1))
    processes = Processes(
        supervisor, settings_with(), tell=lambda event, facts: told.append((event, dict(facts)))
    )
    child = Reporting(*reports)
    processes._running[1] = child
    processes._selector.close()
    processes._selector = MagicMock()
    supervisor.begin(0.0)
    supervisor.poll(0.0)
    with caplog.at_level(logging.INFO):
        processes._on_exit(child, code)
    assert [event for event, _ in told] == events
    assert told[-1][1]["reason"] == (f"ended with status {code}" if code == 10 else "no such module")
    assert ("started, pid 4711" in caplog.text) == ("loaded" in reports)


def test_settings_survive_the_way_to_the_process():
    settings = RunSettings(
        handler="app:handle",
        streams=("orders", "clicks"),
        application_name="billing",
        worker_id="w-1",
        until="2026-01-01T00:00:00+00:00",
        stop_timeout=5.0,
    )
    assert RunSettings.from_json(settings.to_json()) == settings
    assert "\n" not in settings.to_json()


def test_the_lease_store_of_the_option_wins(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('[lease_table]\nlease_store = "sqlite:///file.db"\n')
    of_file = settings_with(config_file=str(path))
    assert of_file.consumer_config().lease_table.lease_store == "sqlite:///file.db"
    url = "postgresql+psycopg://me:secret@host/db"
    settings = settings_with(config_file=str(path), lease_store=url)
    assert RunSettings.from_json(settings.to_json()).consumer_config().lease_table.lease_store == url
    assert "secret" not in repr(settings)


def settings_with(**fields) -> RunSettings:
    return RunSettings(handler="a:b", streams=("s",), application_name="app", worker_id="w", **fields)


def test_options_win_over_the_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('initial_position = "LATEST"\nmax_threads = 7\n[leases]\nfailover_time = 20\n')
    config = settings_with(config_file=str(path), initial_position="TRIM_HORIZON").consumer_config()
    assert (config.initial_position, config.max_threads, config.leases.failover_time) == (
        "TRIM_HORIZON",
        7,
        20,
    )
    assert settings_with(config_file=str(path)).consumer_config().initial_position == "LATEST"
    assert settings_with().consumer_config() == ConsumerConfig()


@pytest.mark.parametrize(
    "written",
    [
        '"2026-01-01"',
        '"2026-01-01T01:00+01:00"',
        '"@1767225600000"',
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-01-01 00:00:00Z",
    ],
)
def test_a_time_in_the_file_is_utc_without_an_offset(tmp_path, written):
    path = tmp_path / "run.toml"
    path.write_text(f"initial_position = {written}\n")
    assert read_config(str(path)).initial_position == datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"leases": {"max_records": 5}}, "leases.max_records"),
        ({"leases": 5}, "leases=5"),
        ({"nonsense": 5}, "nonsense"),
        ({"max_threads": "many"}, "max_threads"),
        ({"initial_position": "15m"}, "initial_position='15m'"),
        ({"initial_position": "-15m"}, "no time relative to now"),
        ({"initial_position": "at:5"}, "expected TRIM_HORIZON, LATEST, a time"),
        ({"initial_position": 5}, "initial_position=5"),
    ],
)
def test_a_wrong_name_or_value_is_named(values, message):
    with pytest.raises(ConfigError, match=message):
        config_from(values)


# Imports


NUMBERS = count()


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(source: str) -> str:
        name = f"handler_of_a_test_{next(NUMBERS)}"
        importlib.invalidate_caches()
        (tmp_path / f"{name}.py").write_text(source)
        return name

    return write


def test_handlers_of_the_current_directory(module):
    name = module("def handle(batch): pass\nclass Group:\n    inner = 5\n")
    assert callable(load_handler(f"{name}:handle"))
    assert load_handler(f"{name}:Group.inner") == 5


@pytest.mark.parametrize(
    ("source", "message", "shown"),
    [
        ("import json\n1 / 0\n", "ZeroDivisionError", "line 2"),
        ("this is no Python\n", "SyntaxError", "line 1"),
        ("import nowhere_at_all\n", "No module named 'nowhere_at_all'", "line 1"),
        ("raise SystemExit('gone')\n", "SystemExit: gone", "line 1"),
        (
            "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('x') from e\n",
            "direct cause",
            "line 2",
        ),
    ],
)
def test_an_error_of_a_module_shows_its_lines_only(module, source, message, shown):
    name = module(source)
    with pytest.raises(HandlerNotFoundError) as failure:
        load_handler(f"{name}:handle")
    text = str(failure.value)
    assert message in text
    assert shown in text
    assert f"{name}.py" in text
    assert "importlib" not in text
    assert "cli/run" not in text


def test_a_missing_module_or_attribute(module):
    name = module("x = 1\n")
    with pytest.raises(HandlerNotFoundError, match="has no attribute 'y'"):
        load_handler(f"{name}:y")
    with pytest.raises(HandlerNotFoundError, match="there is no module 'not_there'"):
        load_handler("not_there.sub:handle")


# Reload


def test_a_change_is_reported_once_it_is_complete(tmp_path):
    (tmp_path / "package" / "inner").mkdir(parents=True)
    inner = tmp_path / "package" / "inner" / "a.py"
    inner.write_text("1")
    (tmp_path / "package" / "data.txt").write_text("1")
    (tmp_path / "package" / "__pycache__").mkdir()
    watcher = FileWatcher([tmp_path / "package"])
    assert watcher.poll() == []
    (tmp_path / "package" / "data.txt").write_text("22")
    (tmp_path / "package" / "__pycache__" / "a.py").write_text("22")
    assert watcher.poll() == []
    assert watcher.poll() == []
    inner.write_text("22")
    assert watcher.poll() == []
    inner.write_text("333")
    assert watcher.poll() == [], "it changes still"
    assert watcher.poll() == [inner]
    assert watcher.poll() == []
    inner.unlink()
    added = tmp_path / "package" / "b.py"
    added.write_text("1")
    watcher.poll()
    assert watcher.poll() == [added, inner]


def test_what_is_watched(tmp_path):
    package = tmp_path / "shop" / "billing"
    package.mkdir(parents=True)
    (tmp_path / "shop" / "__init__.py").touch()
    (package / "__init__.py").write_text("1 / 0")
    (tmp_path / "single.py").write_text("1 / 0")
    (tmp_path / "helper.py").touch()
    path = [str(tmp_path)]
    assert roots_of("shop.billing", path) == [tmp_path / "shop"]
    assert roots_of("single", path) == [tmp_path / "helper.py", tmp_path / "single.py"]
    assert roots_of("nowhere", path) == []
    assert FileWatcher([Path("/nowhere.py"), tmp_path / "single.py"]).poll() == []


# Log


def test_a_line_of_json():
    record = logging.makeLogRecord(
        {"name": "mine", "levelno": 20, "levelname": "INFO", "msg": "got %d", "args": (5,)}
    )
    _NameWorker("w-1").filter(record)
    line = json.loads(JsonFormatter().format(record))
    assert {name: line[name] for name in ("level", "logger", "message", "worker")} == {
        "level": "INFO",
        "logger": "mine",
        "message": "got 5",
        "worker": "w-1",
    }
    assert "shard" not in line
    record = logging.makeLogRecord({"msg": "x", **log_fields(stream="orders", shard="s", worker="other")})
    _NameWorker("w-1").filter(record)
    line = json.loads(JsonFormatter().format(record))
    assert (line["stream"], line["shard"], line["worker"]) == ("orders", "s", "other")
    try:
        raise ValueError("broken\nline")
    except ValueError:
        record.exc_info = sys.exc_info()
    text = JsonFormatter().format(record)
    assert "\n" not in text
    assert "broken" in json.loads(text)["exception"]


# Ends and health of processes


def test_ends_of_processes():
    assert describe_exit(-9, None) == "was killed by SIGKILL"
    assert describe_exit(-64, None) == "was killed by SIGRTMAX"
    assert describe_exit(-200, None) == "was killed by signal 200"
    assert describe_exit(1, None) == "ended with status 1"
    assert describe_exit(1, "HandlerError: x") == "HandlerError: x"


def process(number=1, state=SlotState.RUNNING, live=(), ready=(), silent=0.5, reported=True):
    return ProcessHealth(
        number=number,
        state=state,
        pid=100,
        restarts=0,
        last_failure=None,
        reported={"health": {}, "live": list(live), "ready": list(ready), "failover_time": 10.0}
        if reported
        else None,
        silent=silent,
    )


def test_all_processes_must_be_ready():
    assert list(ready_problems([process(1), process(2)])) == []
    assert list(ready_problems([process(1), process(2, ready=["it drains"])])) == [
        "worker process 2: it drains"
    ]
    assert list(ready_problems([process(2, reported=False)])) == ["worker process 2 has not reported yet"]
    for state in (SlotState.WAITING, SlotState.STARTING, SlotState.STOPPING):
        assert list(ready_problems([process(2, state)])) == [f"worker process 2 is {state.value}"]
    assert list(ready_problems([process(1, SlotState.ENDED)])) == []


def test_a_frozen_process_is_not_ready_once_others_may_take_its_leases():
    assert list(ready_problems([process(2, silent=10.0)])) == []
    frozen = [process(1), process(2, silent=11.0)]
    assert list(ready_problems(frozen)) == [
        "worker process 2 has not reported for 11 s: other workers may have taken its leases"
    ]
    assert list(live_problems(frozen)) == [], "it may go on"
    assert len(list(ready_problems([process(2, silent=61.0)]))) == 1


@pytest.mark.parametrize(
    ("received", "stops"),
    [
        ([(15, 0.0), (15, 0.9)], 1),  # a copy: one for the process, and one for its group
        ([(15, 0.0), (15, 1.0)], 2),
        ([(15, 0.0), (2, 0.1)], 2),
    ],
)
def test_a_copy_of_a_signal_is_not_a_second_one(received, stops, monkeypatch):
    now = [0.0]
    handlers = {}
    monkeypatch.setattr(processes_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(processes_module.signal, "signal", handlers.setdefault)
    run = Processes(Supervisor(1, stop_timeout=5.0, reloads=False, rng=Random(1)), None)
    with run._signals():
        for number, at in received:
            now[0] = at
            handlers[number](number, None)
    assert [number for number, _ in received][:stops] == run._requested


def test_a_process_that_is_replaced_is_no_reason_for_a_restart():
    for state in SlotState:
        problems = list(live_problems([process(1, state, live=["stuck"], silent=61)]))
        assert bool(problems) == (state is SlotState.RUNNING)
    assert list(live_problems([process(1, silent=60), process(2, silent=None)])) == []


class Child:
    pid = 5
    reported_at = 10.0

    def __init__(self):
        self.reported = {"health": {"x": 1}, "live": [], "ready": [], "failover_time": 10.0}


def content(page: Page):
    return json.loads(page.body)


def test_a_supervisor_that_makes_no_progress_is_not_live():
    now = [10.0]
    supervisor = Supervisor(1, stop_timeout=5.0, reloads=False, rng=Random(1))
    health = SupervisorHealth(supervisor, "127.0.0.1", None, clock=lambda: now[0])
    with health:
        assert content(health._probe("ready", ready_problems))["problems"] == [
            "no worker process was started yet"
        ]
        assert health._probe("live", live_problems).status == 200
        supervisor.begin(10.0)
        supervisor.poll(10.0)
        supervisor.on_started(1, 10.0)
        health.observe({1: Child()})
        assert health._probe("live", live_problems).status == 200
        assert health._probe("ready", ready_problems).status == 200
        assert content(health._status())["processes"][0]["health"] == {"x": 1}
        now[0] = 71.0
        assert content(health._probe("live", live_problems))["problems"] == [
            "the supervisor makes no progress for 61 s"
        ]
        health.observe({1: Child()})
        assert content(health._probe("live", live_problems))["problems"] == [
            "worker process 1 has not reported for 61 s"
        ]
