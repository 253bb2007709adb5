"""The cluster of the Spark benchmark."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.spark_cluster import cluster

OPTIONS = Namespace(shards=1, rows=1, rows_per_record=1, hours=1.0, write_rows=0, executors=[2], cores=8)


class FakeChild:
    """A process that starts at once, and writes nothing into its log."""

    made: list[FakeChild]

    def __init__(self, command: list[str], *_: Any) -> None:
        self.command = command
        self.session = len(self.made)
        self.is_alive = True
        self.made.append(self)

    def first_line(self) -> str:
        return "http://127.0.0.1:1"

    def wait_for_text(self, text: str) -> str:
        raise RuntimeError(f"{text!r} does not appear in the log")

    def kill(self) -> None:
        self.is_alive = False


def test_a_cluster_whose_master_does_not_start_leaves_no_process_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    FakeChild.made = []
    monkeypatch.setattr(cluster, "Child", FakeChild)
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(__file__=str(tmp_path / "__init__.py")))
    (tmp_path / "truth.json").write_text("{}")
    with pytest.raises(RuntimeError, match="Starting Spark master"):
        cluster.Cluster(tmp_path, OPTIONS)
    assert [child.is_alive for child in FakeChild.made] == [False, False]
    assert "Master" in " ".join(FakeChild.made[1].command)
