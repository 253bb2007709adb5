"""What `kinesis-sdk run` makes of a factory, and of the policy in a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kinesis_sdk.admin import Connection
from kinesis_sdk.cli.run import child, retry_table
from kinesis_sdk.cli.run.config_file import config_from, read_config
from kinesis_sdk.cli.run.handlers import HandlerNotFoundError, load_parts
from kinesis_sdk.cli.run.policy_table import PolicyPlace, policy_from, tiers_of
from kinesis_sdk.cli.run.settings import RunSettings
from kinesis_sdk.cli.run.supervisor import ChildCode
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.consumer import BisectBatch, ConsumerConfig, RetryBatch, StopWorker
from kinesis_sdk.retries import RetryTiers

CONFIG = ConsumerConfig(max_threads=3)
MODULE = """
from kinesis_sdk import ConsumerConfig, WorkerParts

class Down(Exception):
    pass

def handle(batch): ...
def set_aside(poison): ...
def parts(config):
    return WorkerParts(handler=handle, config=config.with_fields(max_threads=config.max_threads + 1))
def raises(config):
    return config.no_such_field
def other(config):
    return handle
number = 5
"""


@pytest.fixture(autouse=True)
def billing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user's module, which no other test has imported."""
    (tmp_path / "billing_parts.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("billing_parts", None)


def test_a_factory_gets_the_settings_and_may_change_them() -> None:
    found = load_parts("billing_parts:parts", CONFIG, is_factory=True)
    assert found.handler is sys.modules["billing_parts"].handle
    assert found.config == CONFIG.with_fields(max_threads=4)
    assert load_parts("billing_parts:handle", CONFIG, is_factory=False).config is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("number", "'billing_parts:number' is not a function, which --factory expects"),
        ("other", "the factory 'billing_parts:other' returned a function, not a WorkerParts"),
        ("raises", "has no attribute 'no_such_field'"),
    ],
)
def test_a_factory_that_is_none_is_named(name: str, message: str) -> None:
    with pytest.raises(HandlerNotFoundError) as caught:
        load_parts(f"billing_parts:{name}", CONFIG, is_factory=True)
    assert message in str(caught.value)
    if name == "raises":
        assert "billing_parts.py" in str(caught.value)
        assert "handlers.py" not in str(caught.value), "only the user's code is shown"


# A worker process


class Reports:
    """Stands for the pipe to the supervisor."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def send(self, event: str, **content: Any) -> None:
        self.sent.append((event, content.get("message")))


class Stop:
    def is_set(self) -> bool:
        return True


def settings(handler: str, **more: Any) -> RunSettings:
    return RunSettings(
        handler=f"billing_parts:{handler}",
        streams=("orders",),
        application_name="billing",
        worker_id="w",
        is_factory=True,
        **more,
    )


def worked(what: RunSettings, metrics: Any = None) -> tuple[ChildCode, list[tuple[str, Any]]]:
    reports = Reports()
    code = child._run(what, Stop(), reports, metrics)  # type: ignore[arg-type]
    return code, reports.sent


def test_a_worker_has_the_parts_and_closes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(child, "Worker", lambda *_, **arguments: given.append(arguments))
    (tmp_path / "billing_parts.py").write_text(
        MODULE.replace(
            "handler=handle,",
            "handler=handle, sink='a sink', metrics='theirs', close=lambda: closed.append(1),",
        )
        + "\nclosed = []\n"
    )
    assert worked(settings("parts")) == (ChildCode.STOPPED, [("loaded", None)])
    (arguments,) = given
    assert (arguments["sink"], arguments["metrics"]) == ("a sink", "theirs")
    assert arguments["config"].max_threads == ConsumerConfig().max_threads + 1
    assert sys.modules["billing_parts"].closed == [1]


@pytest.mark.parametrize(
    ("part", "of_the_command", "named"),
    [
        ("metrics='theirs'", {"reports_metrics": True}, "None with --metrics-port"),
        ("sink='x'", {"sink": "sqlite:///totals.db"}, "sink='a sink of the factory' is invalid"),
    ],
)
def test_parts_of_the_factory_and_of_the_command_exclude_each_other(
    tmp_path: Path, part: str, of_the_command: dict[str, Any], named: str
) -> None:
    (tmp_path / "billing_parts.py").write_text(MODULE.replace("handler=handle,", f"handler=handle, {part},"))
    code, ((_, message),) = worked(settings("parts", **of_the_command))
    assert code is ChildCode.USAGE
    assert named in message


def test_a_factory_that_fails_is_a_usage_error() -> None:
    code, ((event, message),) = worked(settings("raises"))
    assert (code, event) == (ChildCode.USAGE, "failed")
    assert "the factory 'billing_parts:raises' failed" in message


# The policy in a file


def policy(loads: bool = True, **values: Any) -> Any:
    place = PolicyPlace(application="billing", stream="orders", connection=Connection(region="eu-west-1"))
    try:
        return config_from({"on_handler_error": values}, loads=loads, place=place).on_handler_error
    finally:
        place.close()


def test_each_policy_can_be_written_in_a_file(tmp_path: Path) -> None:
    assert policy(policy="stop") == StopWorker()
    assert policy(policy="retry", initial_delay=2, max_delay=60.0) == RetryBatch(
        initial_delay=2, max_delay=60
    )
    # A hook for records that an operator leaves out.
    for word, kind in (("retry", RetryBatch), ("stop", StopWorker)):
        found = policy(policy=word, dead_letter="billing_parts:set_aside")
        assert found == kind(dead_letter=sys.modules["billing_parts"].set_aside)
    path = tmp_path / "worker.toml"
    path.write_text(
        '[on_handler_error]\npolicy = "bisect"\ndead_letter = "billing_parts:set_aside"\nattempts = 5\n'
        'retry_only = ["ConnectionError", "billing_parts:Down"]\n'
    )
    found = read_config(str(path), loads=True).on_handler_error
    module = sys.modules["billing_parts"]
    assert found == BisectBatch(
        dead_letter=module.set_aside, attempts=5, retry_only=(ConnectionError, module.Down)
    )


def test_only_worker_processes_import_what_the_file_names() -> None:
    """`lag --config worker.toml` runs no code of the application."""
    found = policy(
        loads=False, policy="bisect", dead_letter="billing_parts:set_aside", retry_only=["billing_parts:Down"]
    )
    assert isinstance(found, BisectBatch)
    assert "billing_parts" not in sys.modules
    assert callable(found.dead_letter)
    with pytest.raises(AssertionError):
        found.dead_letter(None)  # type: ignore[arg-type]


TIERS: dict[str, Any] = {"policy": "tiers", "delays": [60, 600], "dead_letter": "billing_parts:set_aside"}


def test_tiers_letters_and_a_breaker_can_be_written_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "worker.toml").write_text(
        '[on_handler_error]\npolicy = "tiers"\ndelays = [60, 600]\nattempts = 2\ndead_letters = "sqlite:///letters.db"\n'
        '[on_handler_error.circuit_breaker]\nfailures = 5\nof = ["OSError"]\nlongest_pause = 30\n'
    )
    what = settings("handle", config_file=str(tmp_path / "worker.toml"), region="eu-west-1", reads_tiers=True)
    what = replace(what, is_factory=False)
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(child, "Worker", lambda *source, **more: given.append({"source": source, **more}))
    assert worked(what) == (ChildCode.STOPPED, [("loaded", None)])
    (arguments,) = given
    assert (arguments["source"], arguments["application_name"]) == ((None,), "billing-retries")
    assert [(str(one.stream), one.delivery_delay) for one in arguments["streams"]] == [
        ("orders.retry-60", 60),
        ("orders.retry-600", 600),
    ]
    breaker = arguments["config"].on_handler_error
    assert (breaker.failures, breaker.of, breaker.longest_pause) == (5, (OSError,), 30)
    assert repr(breaker.dead_letter) == "DeadLetters(application='billing')"
    assert worked(replace(what, reads_tiers=False))[0] is ChildCode.STOPPED
    assert (given[1]["source"], given[1]["application_name"]) == (("orders",), "billing")


def test_tiers_that_a_worker_cannot_have_are_named(tmp_path: Path) -> None:
    place = PolicyPlace(application="billing", connection=Connection(region="eu-west-1"))
    for loads in (False, True):  # the supervisor tells it before it starts a process
        with pytest.raises(ConfigError, match=r"^on_handler_error\.streams="):
            policy_from(TIERS, loads=loads, place=place)
    with pytest.raises(ConfigError, match="--tiers needs a file with policy"):
        tiers_of(policy(policy="stop"))
    named = policy_from({**TIERS, "streams": ["a", "b"]}, loads=False)
    assert [str(one.stream) for one in tiers_of(named)] == ["a", "b"]


TABLE: dict[str, Any] = {**TIERS, "database": "sqlite:///billing.db"}


class RetryWorkers:
    """Stands for `RetryWorker` objects, each of which fails, or not."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.made: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.error = error
        self.events: list[str] = []

    def __call__(self, *given: Any, **more: Any) -> RetryWorkers:
        self.made.append((given, more))
        return self

    def __enter__(self) -> None:
        self.events.append("start")

    def __exit__(self, *_: object) -> None:
        self.events.append("stop")
        if self.error is not None:
            raise self.error


class BusyWorker:
    """Stands for a `Worker` that processes for three looks."""

    def __init__(self, events: list[str], given: list[dict[str, Any]], **arguments: Any) -> None:
        given.append(arguments)
        self._events = events
        self._looks = 3

    def start(self) -> None:
        self._events.append("worker starts")

    def request_stop(self) -> None: ...

    def wait(self, _seconds: float) -> bool:
        self._looks -= 1
        return self._looks < 0

    def stop(self) -> None:
        self._events.append(f"worker stops with {self._looks} looks left")


class Running(Stop):
    def is_set(self) -> bool:
        return False

    def wait(self) -> None: ...


@pytest.mark.parametrize(
    ("error", "code", "left"), [(None, ChildCode.REACHED, -1), (SystemExit(3), ChildCode.FAILED, 2)]
)
def test_a_retry_table_of_a_file_is_read_beside_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException | None, code: ChildCode, left: int
) -> None:
    pytest.importorskip("sqlalchemy")
    (tmp_path / "worker.toml").write_text(
        '[on_handler_error]\npolicy = "tiers"\ndelays = [60]\ndead_letters = "file:letters.jsonl"\n'
        'database = "sqlite:///billing.db"\nkeep_order = true\n[on_handler_error.circuit_breaker]\n'
    )
    (tmp_path / "billing_parts.py").write_text(MODULE.replace("def handle", "async def handle"))
    retries, given = RetryWorkers(error), list[dict[str, Any]]()
    monkeypatch.setattr(retry_table, "RetryWorker", retries)
    monkeypatch.setattr(child, "Worker", lambda *_, **more: BusyWorker(retries.events, given, **more))
    what = settings(
        "handle",
        config_file=str(tmp_path / "worker.toml"),
        sink="sqlite+aiosqlite:///billing.db",
        until="2026-11-27T00:00:00+00:00",
    )
    reports = Reports()
    found = child._run(replace(what, is_factory=False), Running(), reports, None)  # type: ignore[arg-type]
    assert found is code
    assert retries.events == ["worker starts", "start", f"worker stops with {left} looks left", "stop"]
    ((table, tiers, handler), more) = retries.made[0]
    assert (tiers.to is table, handler) == (True, sys.modules["billing_parts"].handle)
    assert (more["database"], more["policy"].policy) == ("sqlite+aiosqlite:///billing.db", tiers)
    (arguments,) = given
    assert (arguments["sink"], table.keeps_order) == ("sqlite+aiosqlite:///billing.db", True)
    assert arguments["handler"] is not handler, "later records of a key wait"


@pytest.mark.parametrize(
    ("handler", "more", "named"),
    [
        ("handle", {"keep": True}, "on_handler_error.keep_order=True is invalid: expected a sink"),
        ("handle", {"dynamodb_table": "orders"}, "on_handler_error.database="),
        ("Handler", {}, "handler="),
    ],
)
def test_a_worker_that_no_retry_table_suits_is_named(
    tmp_path: Path, handler: str, more: dict[str, Any], named: str
) -> None:
    pytest.importorskip("sqlalchemy")
    (tmp_path / "worker.toml").write_text(
        '[on_handler_error]\npolicy = "tiers"\ndelays = [60]\ndead_letters = "file:letters.jsonl"\n'
        f'database = "sqlite:///billing.db"\nkeep_order = {str(more.pop("keep", False)).lower()}\n'
    )
    (tmp_path / "billing_parts.py").write_text(
        MODULE + "\nfrom kinesis_sdk import RecordHandler\nclass Handler(RecordHandler): ...\n"
    )
    what = settings(handler, config_file=str(tmp_path / "worker.toml"), **more)
    code, ((event, message),) = worked(replace(what, is_factory=False))
    assert (code, event) == (ChildCode.USAGE, "failed")
    assert message.startswith(named)


def test_a_table_is_opened_by_worker_processes_alone(tmp_path: Path) -> None:
    assert isinstance(policy(loads=False, **TABLE), RetryTiers)
    with pytest.raises(ConfigError, match="--tiers is for tiers in streams"):
        tiers_of(policy(loads=False, **TABLE))
    assert list(tmp_path.glob("billing.db*")) == []


DEAD: dict[str, Any] = {"policy": "bisect", "dead_letter": "billing_parts:set_aside"}


@pytest.mark.parametrize("loads", [False, True])
@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, "on_handler_error.policy=None"),
        ({"policy": "skip"}, "on_handler_error.policy='skip'"),
        ({"policy": ["stop"]}, "on_handler_error.policy="),
        ({"policy": "stop", "attempts": 3}, "on_handler_error.attempts is invalid: expected one of policy"),
        ({"policy": "bisect"}, "on_handler_error.dead_letter=None"),
        ({"policy": "bisect", "dead_letter": "billing"}, "on_handler_error.dead_letter='billing'"),
        ({"policy": "retry", "dead_letter": 3}, "on_handler_error.dead_letter=3"),
        ({**DEAD, "attempts": 0}, "on_handler_error.attempts=0"),
        ({**DEAD, "retry_only": "ConnectionError"}, "on_handler_error.retry_only='ConnectionError'"),
        ({**DEAD, "retry_only": ["NoSuchError"]}, "on_handler_error.retry_only='NoSuchError'"),
        ({**DEAD, "retry_only": ["SystemExit"]}, "on_handler_error.retry_only='SystemExit'"),
        ({**DEAD, "retry_only": ["print"]}, "on_handler_error.retry_only='print'"),
        ({**DEAD, "retry_only": ["a b:C"]}, "on_handler_error.retry_only='a b:C'"),
        ({**DEAD, "dead_letters": "file:x"}, "on_handler_error.dead_letter='billing_parts:set_aside'"),
        ({"policy": "bisect", "dead_letters": "letters"}, "on_handler_error.dead_letters='letters'"),
        ({**DEAD, "circuit_breaker": 5}, "on_handler_error.circuit_breaker=5"),
        ({**DEAD, "circuit_breaker": {"failure": 5}}, "on_handler_error.circuit_breaker.failure is invalid"),
        ({**DEAD, "circuit_breaker": {"failures": 1}}, "failures=1"),
        ({**DEAD, "circuit_breaker": {"of": ["Nope"]}}, "on_handler_error.circuit_breaker.of='Nope'"),
        ({**TIERS, "delays": 60}, "on_handler_error.delays=60"),
        ({**TIERS, "delays": []}, "delays=[]"),
        ({**TIERS, "to": "table"}, "on_handler_error.to is invalid"),
        ({**TIERS, "streams": "a"}, "on_handler_error.streams='a'"),
        ({**TIERS, "keep_order": True}, "on_handler_error.keep_order=True"),
        ({**TABLE, "keep_order": 1}, "on_handler_error.keep_order=1"),
        ({**TABLE, "streams": ["a", "b"]}, "on_handler_error.streams=['a', 'b']"),
        ({**TABLE, "database": "billing.db"}, "on_handler_error.database='billing.db'"),
    ],
)
def test_a_policy_that_is_none_is_named(values: dict[str, Any], named: str, loads: bool) -> None:
    with pytest.raises(ConfigError) as caught:
        policy(loads=loads, **values)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({**DEAD, "dead_letter": "billing_parts:nothing"}, "has no attribute 'nothing'"),
        ({**DEAD, "dead_letter": "billing_parts:number"}, "a function of a PoisonRecord"),
        ({**TABLE, "database": "oracle://me:secret@host/x"}, "on_handler_error.database='oracle://host/x'"),
        (
            {**DEAD, "retry_only": ["billing_parts:handle"]},
            "on_handler_error.retry_only='billing_parts:handle'",
        ),
        ({**DEAD, "retry_only": ["no_such_module:E"]}, "there is no module 'no_such_module'"),
    ],
)
def test_what_a_worker_process_cannot_import_is_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy(**values)
    assert named in str(caught.value)
