"""An operator at the command line beside a fleet in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinesis_sdk.admin import Connection
from kinesis_sdk.admin import load as load_module
from kinesis_sdk.admin import reading as reading_module
from kinesis_sdk.admin import streams as streams_module
from kinesis_sdk.admin.doctor import probes as probes_module
from kinesis_sdk.admin.fleet import reader as reader_module
from kinesis_sdk.admin.fleet.reader import FleetReader
from kinesis_sdk.cli import steer
from kinesis_sdk.cli.options import ConnectionOptions
from tests.admin.changes.operators import SteeredFleet
from tests.cli.invoking import invoke


class Operator:
    def __init__(self, fleet, tmp_path):
        self.fleet, self.audit = fleet, tmp_path / "audit.jsonl"

    def run(self, *arguments, code=0):
        return invoke(*arguments, code=code)

    def change(self, *arguments, code=0):
        more = ("--yes", "--stream", "orders", "--audit-log", str(self.audit))
        return self.run(*arguments, *more, code=code)


def steer_fleet(
    monkeypatch: pytest.MonkeyPatch, fleet: SteeredFleet, connection: Connection, folder: Path
) -> None:
    """Let commands see a fleet in virtual time. Its workers go on while a command waits."""
    monkeypatch.setattr(ConnectionOptions, "connect", lambda _: connection)
    for timed in (reader_module, probes_module, streams_module, load_module, reading_module):
        monkeypatch.setattr(timed, "SystemClock", lambda: fleet.clock, raising=False)
    monkeypatch.setattr(steer, "clock_and_sleep", lambda: {"clock": fleet.clock, "sleep": fleet.run})
    for waiting in (FleetReader.__init__, streams_module.Streams.__init__):
        monkeypatch.setitem(waiting.__kwdefaults__, "sleep", fleet.run)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))


@pytest.fixture
def operator(tmp_path, monkeypatch):
    def make(workers=("a",), **more):
        fleet = SteeredFleet(tmp_path, **more)
        steer_fleet(monkeypatch, fleet, fleet.connection, tmp_path)
        for name in workers:
            fleet.add(name, fleet.checkpointer(name, "each batch"))
        fleet.load(8)
        return Operator(fleet, tmp_path)

    return make
