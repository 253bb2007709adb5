"""No process outlives the run that started it, however that run ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from integration.java.evidence import wait_for
from integration.java.processes import ROOT, Guarded
from tests import HANG

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")

STARTER = """
import sys, time
from pathlib import Path
from integration.java.processes import Guarded
print(Guarded(["sleep", "600"], Path(sys.argv[1])).pid, flush=True)
time.sleep(600)
"""


def is_alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the latter where it ends in the middle of being read
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_it_ends_when_its_starter_is_killed(tmp_path):
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, tmp_path / "log"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with starter:
        pid = int(starter.stdout.readline())
        assert is_alive(pid)
        starter.kill()
    wait_for(lambda: not is_alive(pid), HANG, "the guarded process is gone")


def test_signals_and_status(tmp_path):
    process = Guarded(["sleep", "600"], tmp_path / "log")
    assert process.is_running
    process.signal(signal.SIGTERM)
    assert process.wait(HANG) != 0
    assert not process.is_running
    process.signal(signal.SIGTERM)  # no such process
    process.close()
    failed = Guarded(["sh", "-c", "echo said; exit 3"], tmp_path / "other")
    assert failed.wait(HANG) == 3
    assert failed.tail() == "said"
    failed.close()


def test_closing_kills(tmp_path):
    process = Guarded(["sleep", "600"], tmp_path / "log")
    process.close()
    assert not is_alive(process.pid)
