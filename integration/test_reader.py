"""The fresh reader reaches two workers by the quickstart alone, and notices a page that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration import reader

ANY_TIME = dict.fromkeys(reader.LIMITS, 3600.0)
"""The limits are for `make reader` on an idle machine; this test is about the page."""


def test_a_fresh_reader_gets_to_two_workers(wheel: Path, tmp_path: Path) -> None:
    one = reader.Reader(tmp_path, str(wheel), ANY_TIME)
    try:
        one.read(reader.PAGE, spark=False)
        one.close()
    finally:
        one.kill()
    assert list(one.times) == ["a consumed record", "two workers share the shards"]


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("pip install '.[cli]'", "pip install --no-index nothing-of-this-name", "nothing-of-this-name"),
        ("kinesis-sdk lag billing", "kinesis-sdk lag biling", "'biling'"),
    ],
)
def test_a_page_that_is_wrong_fails(
    right: str, wrong: str, message: str, wheel: Path, tmp_path: Path
) -> None:
    text = reader.PAGE.read_text(encoding="utf-8")
    assert right in text
    page = tmp_path / "page.md"
    page.write_text(text.replace(right, wrong))
    (folder := tmp_path / "project").mkdir()
    one = reader.Reader(folder, str(wheel), ANY_TIME)
    try:
        with pytest.raises(reader.PageError, match=message):
            one.read(page, spark=False)
    finally:
        one.kill()
