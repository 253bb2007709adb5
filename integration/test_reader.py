"""The fresh reader reaches two workers by the quickstart alone."""

from __future__ import annotations

from pathlib import Path

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
