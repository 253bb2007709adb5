"""Which Python a session starts, without Spark."""

from __future__ import annotations

import stat
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.spark import python_environment
from kinesis_sdk.spark.python_environment import (
    MAX_TASKS_VARIABLE,
    max_tasks_of_session,
    missing_modules,
    pass_on_parallelism,
    use_this_environment,
)


def session(master: str = "local[2]", python: str = "python3") -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, pythonExec=python))


@pytest.fixture
def _another_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter of the session has neither this package nor pyarrow."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(python_environment, "missing_modules", lambda _python: ["kinesis_sdk", "pyarrow"])


@pytest.mark.usefixtures("_another_python")
@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]"])
def test_a_local_session_gets_the_interpreter_of_this_program(master: str) -> None:
    spark = session(master)
    use_this_environment(spark)
    assert spark.sparkContext.pythonExec == sys.executable


@pytest.mark.usefixtures("_another_python")
@pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "k8s://https://host"])
def test_a_path_of_the_driver_is_never_given_to_a_cluster(master: str) -> None:
    spark = session(master)
    with pytest.raises(ConfigError, match="PYSPARK_PYTHON=None"):
        use_this_environment(spark)
    assert spark.sparkContext.pythonExec == "python3"


@pytest.mark.usefixtures("_another_python")
def test_the_users_choice_is_never_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    spark = session(python="/opt/python")
    with pytest.raises(ConfigError, match="PYSPARK_PYTHON='/opt/python'") as caught:
        use_this_environment(spark)
    assert sys.executable in str(caught.value)
    assert spark.sparkContext.pythonExec == "/opt/python"


def test_an_interpreter_that_can_import_the_package_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_environment, "missing_modules", lambda _python: [])
    spark = session()
    use_this_environment(spark)
    assert spark.sparkContext.pythonExec == "python3"


def test_sessions_of_spark_connect_are_left_alone() -> None:
    class Session:
        __module__ = "pyspark.sql.connect.session"

        @property
        def sparkContext(self) -> Any:
            raise AssertionError("a session of Spark Connect has no SparkContext")

    use_this_environment(Session())


def test_an_interpreter_is_asked_for_the_modules(tmp_path: Path) -> None:
    assert "kinesis_sdk" not in missing_modules(sys.executable)
    # -I -S: without the current folder, the environment and the installed packages.
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(bare.stat().st_mode | stat.S_IXUSR)
    assert missing_modules(str(bare)) == ["kinesis_sdk", "pyarrow"]


def test_files_that_spark_ships_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "shipped.zip", "w") as shipped:
        shipped.writestr("kinesis_sdk/__init__.py", "")
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\ncd / && exec "{sys.executable}" -S "$@"\n')
    bare.chmod(bare.stat().st_mode | stat.S_IXUSR)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert missing_modules(str(bare)) == ["kinesis_sdk", "pyarrow"]
    monkeypatch.syspath_prepend(str(tmp_path / "shipped.zip"))
    assert missing_modules(str(bare)) == ["pyarrow"]


def test_an_interpreter_that_cannot_be_asked_is_left_to_spark(tmp_path: Path) -> None:
    assert missing_modules(str(tmp_path / "none")) == []
    assert missing_modules("false") == []


@pytest.mark.parametrize(
    ("master", "slots", "tasks"),
    [
        ("local[2]", 2, 4),
        ("local[*]", 16, 32),
        ("spark://host:7077", 4, 64),
        ("yarn", 500, 1_000),
        ("local-cluster[2,1,1024]", 2, 64),
        ("yarn", 20_000, 10_000),
    ],
)
def test_the_planner_knows_how_many_tasks_suit_the_session(
    master: str, slots: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(master=master, defaultParallelism=slots, environment={})
    pass_on_parallelism(SimpleNamespace(sparkContext=context))
    monkeypatch.setenv(MAX_TASKS_VARIABLE, context.environment[MAX_TASKS_VARIABLE])
    assert max_tasks_of_session() == tasks


@pytest.mark.parametrize("text", [None, "", "0", "-1", "many", "10001", "²"])
def test_without_a_usable_number_there_is_a_default(
    text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(MAX_TASKS_VARIABLE, raising=False)
    if text is not None:
        monkeypatch.setenv(MAX_TASKS_VARIABLE, text)
    assert max_tasks_of_session() == 64
