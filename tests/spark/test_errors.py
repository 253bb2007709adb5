from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator

import pytest

from kinesis_sdk.spark.errors import BriefErrors, StalledError


def fail_deep_inside(error: type[Exception]) -> None:
    try:
        raise OSError("the connection broke")
    except OSError as cause:
        raise error("shard 7 is stalled") from cause


@BriefErrors()
def plan(error: type[Exception]) -> None:
    fail_deep_inside(error)


def read(error: type[Exception]) -> list[int]:
    def rows() -> Iterator[int]:
        with BriefErrors():
            yield 1
            fail_deep_inside(error)

    return list(rows())


def shown(entry: Callable[[type[Exception]], object], error: type[Exception]) -> str:
    """Return what Spark makes of an error."""
    with pytest.raises(error) as caught:
        entry(error)
    return "".join(traceback.format_exception(caught.type, caught.value, caught.tb))


@pytest.mark.parametrize("entry", [plan, read])
def test_spark_shows_what_happened_and_the_log_why(
    entry: Callable[[type[Exception]], object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    text = shown(entry, StalledError)
    assert text.endswith("StalledError: shard 7 is stalled\n")
    assert "fail_deep_inside" not in text
    assert "the connection broke" not in text
    assert "fail_deep_inside" in caplog.text
    assert "the connection broke" in caplog.text


@pytest.mark.parametrize("entry", [plan, read])
def test_a_defect_keeps_its_traceback(entry: Callable[[type[Exception]], object]) -> None:
    text = shown(entry, RuntimeError)
    assert "fail_deep_inside" in text
    assert "the connection broke" in text
