from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.testing.kinesis.tokens import seal, unseal

fields = st.lists(
    st.text("abcXYZ019_.-", max_size=128) | st.integers(0, 2**186).map(str), min_size=1, max_size=6
)


@given(fields)
def test_round_trip(values: list[str]) -> None:
    expected = values if values != [""] else None
    assert unseal(seal(*values)) == expected


@given(st.text(max_size=60))
def test_nothing_else_is_a_token(text: str) -> None:
    assert unseal(text) is None


@given(st.integers(0, 40), st.sampled_from("ABab01"))
def test_a_changed_token_is_refused(at: int, letter: str) -> None:
    token = seal("iterator", "stream", "shardId-000000000000", 49 * 10**54)
    changed = token[:at] + letter + token[at + 1 :]
    assert (unseal(changed) is None) == (changed != token)


def test_the_longest_iterator_fits_the_model() -> None:
    assert len(seal("iterator", "s" * 128, 10**13, "shardId-000000000000", 10**56 - 1, 10**13)) <= 512
