"""An operator at the command line beside a fleet in virtual time."""

from __future__ import annotations

import pytest

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


@pytest.fixture
def operator(tmp_path, monkeypatch):
    def make(workers=("a",), **more):
        fleet = SteeredFleet(tmp_path, **more)
        monkeypatch.setattr(ConnectionOptions, "connect", lambda _: fleet.connection)
        monkeypatch.setattr(steer, "clock_and_sleep", lambda: {"clock": fleet.clock, "sleep": fleet.run})
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        for name in workers:
            fleet.add(name, fleet.checkpointer(name, "each batch"))
        fleet.load(8)
        return Operator(fleet, tmp_path)

    return make
