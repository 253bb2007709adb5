from __future__ import annotations

import pytest

from kinesis_sdk.common.text import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host-7:311:4f2a", "host-7:311:4f2a"),
        ("a b|ä", "a b|ä"),
        ("x\n\x1b[31m", "x\\n\\x1b[31m"),
        ("\u2028\x85\ud800", "\\u2028\\x85\\ud800"),
        ("", ""),
    ],
)
def test_control_characters_are_escaped(text, shown):
    assert printable(text) == shown


def test_what_is_shown_is_bounded():
    assert printable("x" * 100_000) == "x" * 200 + "... (100000 characters)"
    assert printable("\n" * 5, limit=2) == "\\n\\n... (5 characters)"
