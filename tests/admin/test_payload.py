from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.admin.payload import PayloadKind, decode_payload, escaped, pretty_json
from tests.fuzz import how_many


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", PayloadKind.EMPTY),
        (b'{"a": 1}', PayloadKind.JSON),
        (b" [1, 2]\n", PayloadKind.JSON),
        (b"42", PayloadKind.TEXT),
        (b'"text"', PayloadKind.TEXT),
        (b"{broken", PayloadKind.TEXT),
        ("grün".encode(), PayloadKind.TEXT),
        (b"\xff\xfe\x00", PayloadKind.HEX),
        (b"text\x00with a zero", PayloadKind.HEX),
        # Python reads these, but would write something else, or what other readers reject.
        (b'{"a": NaN}', PayloadKind.TEXT),
        (b'{"a": 1e999}', PayloadKind.TEXT),
        (b'{"a": "\\ud800"}', PayloadKind.TEXT),
        (b"[" * 100_000, PayloadKind.TEXT),
        (b'{"a": ' + b"9" * 5000 + b"}", PayloadKind.TEXT),
    ],
)
def test_what_a_payload_is(data: bytes, kind: PayloadKind) -> None:
    decoded = decode_payload(data, limit=1 << 20)
    assert decoded.kind is kind
    assert decoded.size == len(data)
    assert data.decode("latin-1") not in repr(decoded) or not data, "no payload in a log line"
    decoded.pretty()


def test_a_long_payload_is_cut_between_characters() -> None:
    decoded = decode_payload(("€" * 100).encode(), limit=100)
    assert (decoded.kind, decoded.text, decoded.truncated) == (PayloadKind.TEXT, "€" * 33, True)
    assert decoded.size == 300
    cut_json = decode_payload(b'{"a": "' + b"x" * 100 + b'"}', limit=50)
    assert (cut_json.kind, cut_json.truncated) == (PayloadKind.TEXT, True)
    assert decode_payload(b"\xff" * 100, limit=2).text == "ffff"


def test_pretty_json_keeps_values_as_they_are_written() -> None:
    text = '{"b":1.10,"a":[1e3,{}, [ ],"x, {y}: \\"z"],"a":12345678901234567890.10}'
    assert pretty_json(text) == (
        '{\n  "b": 1.10,\n  "a": [\n    1e3,\n    {},\n    [],\n    "x, {y}: \\"z"\n  ],\n'
        '  "a": 12345678901234567890.10\n}'
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=how_many(unit=10, fuzz=100))
@given(json_values, st.sampled_from([None, 1, "\t"]))
def test_pretty_json_is_the_same_json(value: object, indent: object) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent)  # type: ignore[arg-type]
    assert json.loads(pretty_json(text)) == value


def test_very_deep_json_is_shown_as_it_is() -> None:
    text = "[" * 500 + "]" * 500
    assert pretty_json(text) == text


def test_bytes_are_shown_in_rows() -> None:
    assert decode_payload(b"\x00ABC\xff" * 4).pretty().splitlines() == [
        "00000000  00 41 42 43 ff 00 41 42 43 ff 00 41 42 43 ff 00  .ABC..ABC..ABC..",
        "00000010  41 42 43 ff                                      ABC.",
    ]


@given(st.text())
def test_escaped_text_cannot_control_a_terminal(text: str) -> None:
    shown = escaped(text)
    assert all(one.isprintable() or one in "\n\t" for one in shown)
    shown.encode("utf-8")


def test_terminal_sequences_are_escaped() -> None:
    assert escaped("\x1b[2Jgone\r\u202e\u009b1m\ud800") == "\\x1b[2Jgone\\r\\u202e\\x9b1m\\ud800"
