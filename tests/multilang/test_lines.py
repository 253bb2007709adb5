from __future__ import annotations

from random import Random

import pytest

from kinesis_sdk.multilang.lines import Line, LineSplitter


def test_lines_over_several_pieces() -> None:
    splitter = LineSplitter(100)
    assert splitter.feed(b"one\ntw") == [Line(b"one", 3)]
    assert splitter.feed(b"") == []
    assert splitter.feed(b"o\n\n\nrest") == [Line(b"two", 3), Line(b"", 0), Line(b"", 0)]
    assert splitter.flush() == [Line(b"rest", 4)]
    assert splitter.flush() == []


def test_a_long_line_is_cut_and_its_length_is_known() -> None:
    splitter = LineSplitter(10)
    for _ in range(1000):
        assert splitter.feed(b"x" * 100) == []
    assert len(splitter._kept) == 10
    (long, short) = splitter.feed(b"y\nz\n")
    assert long == Line(b"x" * 10, 100_001)
    assert long.is_cut
    assert short == Line(b"z", 1)
    assert not short.is_cut


@pytest.mark.parametrize("seed", range(20))
def test_any_pieces_give_the_lines_of_the_whole(seed: int) -> None:
    rng = Random(seed)
    data = bytes(rng.choice(b"ab\n") for _ in range(rng.randrange(200)))
    limit = rng.randrange(1, 8)
    splitter = LineSplitter(limit)
    found: list[Line] = []
    rest = data
    while rest:
        size = rng.randrange(1, 12)
        found += splitter.feed(rest[:size])
        rest = rest[size:]
    found += splitter.flush()
    whole = data.split(b"\n")
    if not whole[-1]:
        whole.pop()
    assert found == [Line(line[:limit], len(line)) for line in whole]
