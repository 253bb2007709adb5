from __future__ import annotations

import json
import signal
import sys
from typing import Any
from unittest.mock import MagicMock

import pytest
import uvicorn

from kinesis_sdk.admin import Connection
from kinesis_sdk.cli.options import ConnectionOptions
from kinesis_sdk.cli.web import server as server_module
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.testing import FakeAws, VirtualClock
from kinesis_sdk.testing.demo import runner as demo_runner
from tests.cli.invoking import invoke


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []

    class Server:
        url = shown_url = "http://localhost:1/"

        def __init__(self, backend: object, **settings: Any) -> None:
            seen.append({"backend": backend, **settings})

        def serve(self) -> None:
            """End at once, as after Ctrl-C."""

    monkeypatch.setattr(server_module, "ConsoleServer", Server)
    return seen


def test_it_listens_on_this_machine_and_only_reads(started: list[dict[str, Any]]) -> None:
    result = invoke("ui")
    (settings,) = started
    assert (settings["host"], settings["port"], settings["token"]) == ("127.0.0.1", 8787, None)
    assert settings["allow_changes"] is False
    assert settings["applications"] == ()
    assert "http://localhost:1/" in result.output
    assert "read-only" in result.output


def test_options_reach_the_server(started: list[dict[str, Any]]) -> None:
    words = (
        "ui billing search --stream orders --port 0 --host 0.0.0.0 --allow-changes --allow-host console.internal "
        "--region eu-west-1"
    )
    invoke(*words.split(), env={"KINESIS_SDK_UI_TOKEN": "a long enough token"})
    (settings,) = started
    assert settings["applications"] == ("billing", "search")
    assert (settings["stream"], settings["allow_changes"]) == ("orders", True)
    assert settings["token"] == "a long enough token"
    assert settings["allowed_hosts"] == ("console.internal",)
    assert settings["backend"].describe()["region"] == "eu-west-1"


def test_programs_are_told_where_it_serves(started: list[dict[str, Any]]) -> None:
    result = invoke("ui", "billing", "--allow-changes", "--json")
    assert json.loads(result.stdout) == {
        "url": "http://localhost:1/",
        "applications": ["billing"],
        "allow_changes": True,
    }


def test_the_table_and_the_failover_time_reach_the_watch_and_the_changes(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    aws = FakeAws(clock=VirtualClock())
    connection = Connection(clients={"kinesis": aws.client("kinesis"), "dynamodb": aws.client("dynamodb")})
    monkeypatch.setattr(ConnectionOptions, "connect", lambda _: connection)
    DynamoDBLeaseStore(connection.dynamodb, "billing-leases", sleep=aws.clock.advance).ensure_ready()
    arguments = ["ui", "billing", "--table", "billing-leases", "--failover-time", "1m"]
    invoke(*arguments)
    (settings,) = started
    assert [one["name"] for one in settings["backend"].applications()] == ["billing"]
    poller = settings["backend"]._poller("billing")
    assert (poller.application.table_name, poller.failover_time) == ("billing-leases", 60.0)
    with pytest.raises(ConfigError, match="shard"):
        settings["planner"].plan("billing", {"operation": "release", "leases": ["shardId-000000000009"]})


@pytest.mark.parametrize(("received", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_the_exit_code_tells_ctrl_c_from_sigterm(
    monkeypatch: pytest.MonkeyPatch, received: signal.Signals, code: int
) -> None:
    def run(server: Any, sockets: list[Any]) -> None:
        assert sockets == [listener]
        server.handle_exit(received, None)
        assert server.should_exit

    listener = MagicMock()
    listener.getsockname.return_value = ("127.0.0.1", 1)
    monkeypatch.setattr(server_module.socket, "socket", lambda *_: listener)
    monkeypatch.setattr(uvicorn.Server, "run", run)
    result = invoke("ui", "--port", "0", code=code)
    assert result.stderr.endswith("Stopped.\n")


def test_a_short_token_is_rejected_before_anything_listens() -> None:
    result = invoke("ui", "--port", "0", "--token", "short", code=2)
    assert "at least 16 characters" in result.output
    assert "short" not in result.output


@pytest.mark.parametrize("command", [["ui"], ["demo", "--ui"]])
@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, command: list[str], package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    result = invoke(*command, code=2)
    assert f"needs the package {package}" in result.output
    assert "'.[ui]'" in result.output


@pytest.mark.parametrize(
    ("arguments", "port", "duration"),
    [([], None, 12.0), (["--ui"], 8787, 90.0), (["--ui", "--ui-port", "0", "--duration", "20s"], 0, 20.0)],
)
def test_a_demo_with_a_console_takes_longer(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], port: int | None, duration: float
) -> None:
    seen: list[Any] = []

    def run(options: Any, _progress: object, console: Any) -> None:
        seen.append((console.args[0] if console else None, options.duration))
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_runner, "run_demo", run)
    invoke("demo", *arguments, code=130)
    assert seen == [(port, duration)]


@pytest.mark.parametrize(
    ("settings", "has_token", "is_shown"),
    [
        ({}, False, False),
        ({"allow_changes": True}, True, True),
        ({"host": "0.0.0.0"}, True, True),
        ({"token": "a long enough token"}, True, False),
        ({"token": "a long enough token", "allow_changes": True, "host": "0.0.0.0"}, True, False),
    ],
    ids=["reads", "changes", "elsewhere", "given", "given-for-all"],
)
def test_changes_need_a_token_and_a_given_one_is_not_printed(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], has_token: bool, is_shown: bool
) -> None:
    listener = MagicMock()
    listener.getsockname.return_value = ("127.0.0.1", 1)
    monkeypatch.setattr(server_module.socket, "socket", lambda *_: listener)
    server = server_module.ConsoleServer(MagicMock(), port=0, **settings)
    assert ("?token=" in server.url) == has_token
    assert ("?token=" in server.shown_url) == is_shown
