from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import (
    MAX_MILLIS,
    AfterSequence,
    AtSequence,
    AtTimestamp,
    Ended,
    Latest,
    Position,
    TrimHorizon,
)
from kinesis_sdk.common.position_text import format_position, parse_duration, parse_position, parse_time
from tests import fuzz

NOW = 1_795_348_800.0  # 2026-11-22T12:00:00Z
NINE = AtTimestamp(1_795_251_600_000)  # 2026-11-21T09:00:00Z


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("TRIM_HORIZON", TrimHorizon()),
        (" trim_horizon ", TrimHorizon()),
        ("Latest", Latest()),
        ("SHARD_END", Ended()),
        ("2026-11-21T09:00:00Z", NINE),
        ("2026-11-21T09:00:00", NINE),
        ("2026-11-21T09:00", NINE),
        ("2026-11-21 09:00z", NINE),
        ("2026-11-21T10:00+01:00", NINE),
        ("2026-11-21T03:30:00-0530", NINE),
        ("2026-11-21T09:00:00.000000Z", NINE),
        ("2026-11-21T09:00:00.25", AtTimestamp(NINE.millis + 250)),
        ("2026-11-21T09:00:00.123456789Z", AtTimestamp(NINE.millis + 123)),
        ("2026-11-21", AtTimestamp(NINE.millis - 9 * 3_600_000)),
        ("@1795251600000", NINE),
        ("@0", AtTimestamp(0)),
        (f"@{MAX_MILLIS}", AtTimestamp(MAX_MILLIS)),
        ("-15m", AtTimestamp(1_795_347_900_000)),
        ("-1h30m", AtTimestamp(1_795_343_400_000)),
        ("-0", AtTimestamp(1_795_348_800_000)),
        ("AT_TIMESTAMP 1795251600000", NINE),
        ("at_timestamp  @1795251600000", NINE),
        ("AT_TIMESTAMP 2026-11-21T09:00", NINE),
        ("AT_TIMESTAMP -15m", AtTimestamp(1_795_347_900_000)),
        ("at:49", AtSequence("49")),
        ("AT:49", AtSequence("49")),
        ("AT_SEQUENCE_NUMBER 49", AtSequence("49")),
        ("after:49", AfterSequence("49")),
        ("after:49/3", AfterSequence("49", sub_sequence_number=3)),
        ("AFTER_SEQUENCE_NUMBER 49", AfterSequence("49")),
        ("AFTER_SEQUENCE_NUMBER 49/3", AfterSequence("49", sub_sequence_number=3)),
        ("at:49/3", AfterSequence("49", sub_sequence_number=2)),
        ("at:49/0", AfterSequence("49", sub_sequence_number=-1)),
        ("after:" + "9" * 129, AfterSequence("9" * 129)),
    ],
)
def test_one_text_has_one_meaning(text: str, position: Position) -> None:
    assert parse_position(text, now=NOW) == position
    if isinstance(position, AtTimestamp):
        assert parse_time(text, field="until", now=NOW) == position.millis


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("15m", "write -15m for 15m ago"),
        ("30", "write -30s for 30s ago"),
        ("1795251600", "write @1795251600000 for epoch seconds"),
        ("1795251600000", "write @1795251600000 for epoch milliseconds"),
        ("49/3", "write at:49/3 for this record or after:49/3 for the next one"),
        ("4" * 56, f"write at:{'4' * 56} for this record or after:{'4' * 56} for the next one"),
    ],
)
def test_an_ambiguous_text_is_refused_with_the_remedy(text: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"^start='{text}' is invalid: expected TRIM_HORIZON, .*; {hint}$"):
        parse_position(text, field="start", now=NOW)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "soon",
            "BEGINNING",
            "at:",
            "after:",
            "at:x",
            "after:1/",
            "after:1/x",
            "at:1/2/3",
            "at:-1",
            "at:1.5",
        ),
        *(
            "at:٣",
            "@",
            "@x",
            "@-1",
            "@1.5",
            "-",
            "--5m",
            "-15",
            "-5parsecs",
            "time:5",
            "AT_TIMESTAMP",
            "LATEST 5",
        ),
        *("AT_TIMESTAMP LATEST", "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER x", "20261121", "2026-W47-6"),
        *(
            "2026-13-01",
            "2026-11-31",
            "2026-11-21T25:00",
            "2026-11-21T09",
            "2026-11-21T09:00:60",
            "2026-11-21Z",
        ),
        *("2026-11-21T09:00+24:00", "2026-11-21T09:00 CET", "1969-12-31T23:59:59Z", "0000-01-01", "-3000w"),
        *(
            f"@{MAX_MILLIS + 1}",
            "@" + "9" * 5000,
            "at:" + "9" * 130,
            "9" * 5000,
            "-" + "1m" * 5000,
            "at:1/" + "9" * 19,
        ),
    ],
)
def test_texts_that_are_no_positions(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^position=") as caught:
        parse_position(text, now=NOW)
    assert len(str(caught.value)) < 600
    with pytest.raises(ConfigError, match=r"^until="):
        parse_time(text, field="until", now=NOW)


def test_a_setting_names_only_what_it_accepts() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_position("at:5", field="from", now=NOW, accepted=(Latest, AtTimestamp))
    assert caught.value.accepted == "LATEST, a time (2026-11-21T09:00:00Z, @1732179600000 or -15m)"
    with pytest.raises(ConfigError, match=r"at:<sequence number>\[/<index>\]$"):
        parse_position("2026-11-21", now=NOW, accepted=(AtSequence,))
    assert parse_position("at:5/2", now=NOW, accepted=(AtSequence,)) == AfterSequence(
        "5", sub_sequence_number=1
    )
    with pytest.raises(ConfigError, match="after:"):
        parse_position("at:5/2", now=NOW, accepted=(AfterSequence,))


def test_a_setting_that_is_read_again_takes_no_time_relative_to_now() -> None:
    with pytest.raises(ConfigError, match=r"^position="):
        parse_position("-15m", now=None)
    assert parse_position("2026-11-21T09:00", now=None) == NINE


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="a process cannot change its time zone here")
def test_a_time_without_an_offset_is_utc_wherever_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as there:
        there.setenv("TZ", "JST-9")
        time.tzset()
        found = parse_position("2026-11-21T09:00:00", now=NOW)
    time.tzset()
    assert found == NINE


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(
            ("90s", 90.0),
            ("500ms", 0.5),
            ("1.5h", 5400.0),
            ("15m", 900.0),
            ("2d", 172_800.0),
            ("1w", 604_800.0),
        ),
        *(("1h30m", 5400.0), ("1m 500ms", 60.5), (" 5 S ", 5.0), ("0", 0.0), ("0s", 0.0)),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text, field="timeout") == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "-5s",
        "1.2.3s",
        "٣s",
        "²s",
        "5parsecs",
        "5min",
        "1e3s",
        "5 s s",
        "00",
        "inf",
        "nan",
        "1s" * 101,
        "9" * 13 + "s",
    ],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^timeout="):
        parse_duration(text, field="timeout")


def test_a_number_alone_is_no_duration() -> None:
    with pytest.raises(ConfigError, match=r"^timeout='30' .*write 30s"):
        parse_duration("30", field="timeout")


def test_a_duration_out_of_range_is_told_the_range() -> None:
    with pytest.raises(ConfigError, match="from 1s to 60s"):
        parse_duration("5h", field="timeout", least=1.0, most=60.0)
    with pytest.raises(ConfigError, match="2s or more"):
        parse_duration("1s", field="timeout", least=2.0)


DIGITS = st.integers(0, 10**129 - 1).map(str)
POSITIONS: st.SearchStrategy[Position] = st.one_of(
    st.sampled_from([TrimHorizon(), Latest(), Ended()]),
    st.builds(AtTimestamp, st.integers(0, MAX_MILLIS)),
    st.builds(AtSequence, DIGITS),
    st.builds(AfterSequence, DIGITS, sub_sequence_number=st.none() | st.integers(-1, 10**18 - 1)),
)


@settings(max_examples=fuzz.how_many(unit=60, fuzz=2000))
@given(POSITIONS)
def test_a_canonical_text_means_its_position(position: Position) -> None:
    text = format_position(position)
    assert parse_position(text, now=None) == position
    assert format_position(parse_position(text, now=None)) == text
    if not isinstance(position, AfterSequence) or (position.sub_sequence_number or 0) >= 0:
        assert parse_position(str(position), now=None) == position  # as offsets of Spark store it


PIECES = st.sampled_from(
    [
        "at:",
        "after:",
        "@",
        "-",
        "/",
        "T",
        "Z",
        ":",
        ".",
        "+01:00",
        " ",
        "AT_TIMESTAMP ",
        "LATEST",
        "m",
        "h",
        "ms",
        "2026-11-21",
        "9" * 30,
        "٣",
        "\0",
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES | st.integers(0, 99).map(str)).map("".join))


@settings(max_examples=fuzz.how_many(unit=80, fuzz=20_000))
@given(TEXTS)
def test_no_text_raises_anything_else(text: str) -> None:
    calls: list[Any] = [
        lambda: parse_position(text, now=NOW),
        lambda: parse_time(text, field="until", now=None),
        lambda: parse_duration(text, field="timeout"),
    ]
    for call in calls:
        try:
            call()
        except ConfigError as error:
            assert len(str(error)) < 900, "a text of at most 200 characters is in it three times at most"


@pytest.mark.parametrize("piece", ["1m", "1 ", "9", "at:", "-", "@", "1.1s ", " "])
def test_a_long_text_is_not_searched(piece: str) -> None:
    for parse in (lambda text: parse_duration(text, field="x"), lambda text: parse_position(text, now=NOW)):
        with pytest.raises(ConfigError):
            parse(Unread(piece * 201))


class Unread(str):
    """A text that must not be taken apart."""

    __slots__ = ()

    def strip(self, *_: Any) -> str:
        raise AssertionError("searched")
