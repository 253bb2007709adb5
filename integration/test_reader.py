"""The fresh reader reaches two workers by docs/quickstart.md alone; words and concepts on the way stay few."""

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


def test_a_fresh_reader_pastes_the_program_of_the_readme(wheel: Path, tmp_path: Path) -> None:
    assert reader.read_readme(tmp_path, str(wheel), limit=3600.0) > 0


@pytest.mark.parametrize(
    ("milestone", "words", "concepts"), [(reader.FIRST, 150, 12), ("a consumed record", 350, 14)]
)
def test_the_way_to_the_first_record_is_short(milestone: str, words: int, concepts: int) -> None:
    read = reader.words_to(milestone)
    found = reader.concepts_in(read)
    assert len(read) <= words
    assert {"stream", "producer", "worker", "handler", "application", "initial position"} <= set(found)
    assert len(found) <= concepts, found


def test_every_milestone_of_the_page_has_a_block() -> None:
    counts = [len(reader.words_to(milestone)) for milestone in reader.BLOCKS]
    assert counts == sorted(counts)
    assert {reader.FIRST, *reader.BLOCKS} == set(reader.LIMITS)
