"""Headers of set-aside records: what they tell, and what forged ones may do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.dead_letters import (
    ATTEMPT,
    DUE,
    ERROR,
    FIRST_FAILED,
    LEFT_OUT,
    MAX_ATTEMPT,
    ORIGIN,
    History,
    Origin,
    own_headers,
)
from kinesis_sdk.common.error_policy import PoisonRecord
from kinesis_sdk.common.headers import Headers, encode_headers, headers_in
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.stream import StreamId
from tests import fuzz

SHARD = "shardId-000000000003"
PLACE = Origin("orders", SHARD, "4964643757", 7)
NOW = 1_700_000_000_000


def poison(headers=None, *, stream="orders", error=None, seconds=2.5):
    record = UserRecord(b"secret", "k", "4964643757", sub_sequence_number=7, headers=headers or Headers())
    return PoisonRecord(
        record=record,
        error=error or ValueError("secret"),
        attempts=3,
        shard_id=SHARD,
        stream=StreamId(stream),
        failing_seconds=seconds,
    )


def stored(headers):
    """Return headers as a reader of a stream sees them."""
    return headers_in(encode_headers(headers))


def test_each_round_keeps_the_origin_and_the_first_failure_and_nothing_of_the_payload() -> None:
    own = stored({"traceparent": "00-1", "kind": b"\xff"})
    first = poison(own)
    history = History.after(first, NOW, 60_000)
    copy = stored(history.headers(first.record))
    assert copy == {
        **own,
        ORIGIN: f"orders/{SHARD}/4964643757/7".encode(),
        ATTEMPT: b"1",
        ERROR: b"ValueError",
        FIRST_FAILED: str(NOW - 2500).encode(),
        DUE: str(NOW + 60_000).encode(),
    }
    assert History.of(copy) == history
    again = poison(copy, stream="orders.retry-60", error=KeyError("secret"))
    dead = History.after(again, NOW + 90_000)
    assert dead == History(origin=PLACE, error="KeyError", attempt=2, first_failed=NOW - 2500, due=None)
    letter = stored(dead.headers(again.record))
    assert own_headers(again.record) == own
    assert History.of(letter) == dead
    assert DUE not in letter
    assert b"secret" not in encode_headers(dead.headers(again.record))


def test_headers_that_do_not_fit_beside_the_history_are_left_out_and_counted() -> None:
    own = stored({f"h{number:03}": b"x" * 100 for number in range(64)})
    letter = stored(History.after(poison(own), NOW).headers(poison(own).record))
    assert int(letter[LEFT_OUT]) == len(own) - sum(name in letter for name in own) > 0
    assert list(letter)[: len(own) - int(letter[LEFT_OUT])] == list(own)[: len(own) - int(letter[LEFT_OUT])]


@pytest.mark.parametrize(
    "text",
    ["", "orders", "orders/s/1/0", f"orders/{SHARD}/x/0", f"orders/{SHARD}/1/0/1", f"a b/{SHARD}/1/0", f"orders/{SHARD}/1/{'9' * 11}"],
)  # fmt: skip
def test_a_malformed_origin_is_none(text: str) -> None:
    assert Origin.parse(text) is None
    assert History.of({ORIGIN: text.encode()}) is None


def test_the_origin_is_the_id_of_the_record() -> None:
    assert Origin.parse(str(PLACE)) == PLACE


@settings(max_examples=fuzz.how_many(unit=30, fuzz=2_000))
@given(
    st.dictionaries(
        st.sampled_from([ERROR, ATTEMPT, FIRST_FAILED, DUE, LEFT_OUT]),
        st.one_of(st.binary(max_size=40), st.integers(0, 10**40).map(lambda one: str(one).encode())),
    )
)
@pytest.mark.fuzz
def test_forged_headers_are_bounded(forged) -> None:
    headers = {ORIGIN: str(PLACE).encode(), **forged}
    history = History.of(headers)
    assert history is not None
    assert 1 <= history.attempt <= MAX_ATTEMPT
    assert len(history.error) <= 128
    for millis in (history.first_failed, history.due):
        assert millis is None or 0 < millis < 253_402_300_800_000
    assert History.after(poison(headers), NOW, 1).attempt <= MAX_ATTEMPT
