from __future__ import annotations

import json

import pytest

from kinesis_sdk.testing import __main__ as command
from kinesis_sdk.testing.__main__ import build_parser


def test_options() -> None:
    options = build_parser().parse_args(
        ["--no-throttle", "--create-stream", "a:2", "--create-stream", "b:c:3"]
    )
    assert options.create_stream == [("a", 2), ("b:c", 3)]
    assert not options.throttle
    assert options.port == 4567


@pytest.mark.parametrize("text", ["a", "a:", ":3", "a:0", "a:-1", "a:x"])
def test_a_stream_needs_a_name_and_a_count(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["--create-stream", text])
    assert "NAME:SHARDS" in capsys.readouterr().err


def test_help_shows_how_to_reach_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["--help"])
    text = capsys.readouterr().out
    assert "AWS_ENDPOINT_URL" in text
    assert "/_fake/faults" in text


def test_programs_are_told_where_it_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Server:
        endpoint_url = "http://127.0.0.1:4711"

        def __init__(self, *_: object, **__: object) -> None:
            """Listen nowhere."""

        def start(self) -> Server:
            return self

        def stop(self) -> None:
            """Nothing runs."""

    class Ended:
        def wait(self, timeout: float) -> bool:
            """Ctrl-C came already. A wait without a timeout would miss a signal that another thread receives."""
            return timeout < 1

    monkeypatch.setattr(command, "FakeAwsServer", Server)
    monkeypatch.setattr(command, "StopFlag", Ended)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    assert command.main(["--json", "--create-stream", "orders:2"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "endpoint_url": "http://127.0.0.1:4711",
        "region": "us-east-1",
        "streams": ["orders"],
    }


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            FileNotFoundError(2, "No such file or directory", "/nowhere/ca.pem"),
            "Error: cannot write the certificate: ",
        ),
        (OSError(98, "Address already in use"), "Error: cannot serve on 127.0.0.1:4711: "),
        (ModuleNotFoundError("TLS needs the package trustme"), "Error: TLS needs the package trustme"),
    ],
)
def test_a_start_that_fails_names_the_cause(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Server:
        def __init__(self, *_: object, **__: object) -> None:
            """Listen nowhere."""

        def start(self) -> None:
            raise error

    monkeypatch.setattr(command, "FakeAwsServer", Server)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    assert command.main(["--port", "4711"]) == 2
    assert capsys.readouterr().err.startswith(said)
