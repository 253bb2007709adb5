from __future__ import annotations

import importlib
import sys
from binascii import a2b_base64
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.common import base64coding

TEXTS = st.one_of(
    st.binary(max_size=200).map(lambda data: base64coding.encode_by_standard_library(data).decode()),
    st.text("ABCabc09+/=\n -_", max_size=40),
    st.text(max_size=10),
)


def result(decode: Callable[[str], bytes], text: str) -> bytes | type[ValueError]:
    try:
        return decode(text)
    except ValueError as error:
        return ValueError if not text.isascii() else type(error)


@given(st.binary(max_size=300))
def test_what_is_written_is_what_the_standard_library_writes(data: bytes) -> None:
    encoded = base64coding.encode(data)
    assert encoded == base64coding.encode_by_standard_library(data)
    assert type(encoded) is bytes
    assert base64coding.decode(encoded.decode()) == data


@given(TEXTS)
def test_both_implementations_read_and_reject_the_same(text: str) -> None:
    assert result(base64coding.decode, text) == result(a2b_base64, text)


def test_pybase64_is_taken_where_it_is_and_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    pybase64 = pytest.importorskip("pybase64", reason="the extra `fast` is not installed")
    assert base64coding.decode is not a2b_base64
    assert base64coding.encode is pybase64.b64encode
    try:
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "pybase64", None)
            importlib.reload(base64coding)
            assert base64coding.decode is a2b_base64
            assert base64coding.encode(b"abc") == b"YWJj"
    finally:
        importlib.reload(base64coding)
    assert base64coding.decode is not a2b_base64
