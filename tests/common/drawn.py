"""Drawn user records: partition keys, explicit hash keys and data, for property tests of aggregates."""

from __future__ import annotations

from hypothesis import strategies as st

from kinesis_sdk.common.hashkeys import MAX_HASH_KEY

KEYS = st.one_of(
    st.sampled_from(["a", "key", "schlüssel", "鍵", "🔑", "x" * 127, "x" * 128, "é" * 64]),
    st.text(min_size=1, max_size=256).filter(lambda text: text.isprintable() or not text.isascii()),
)
HASHES = st.one_of(
    st.none(), st.sampled_from(["0", "5", str(MAX_HASH_KEY)]), st.integers(0, MAX_HASH_KEY).map(str)
)
DATA = st.one_of(
    st.binary(max_size=20),
    st.integers(115, 135).map(lambda size: b"d" * size),  # one-byte to two-byte lengths
    st.integers(16_370, 16_390).map(lambda size: b"D" * size),  # two to three
)
