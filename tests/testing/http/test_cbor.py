from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kinesis_sdk.testing import FakeAws
from kinesis_sdk.testing.http import server
from kinesis_sdk.testing.http.cbor import decode, encode
from kinesis_sdk.testing.http.messages import Request

# Examples of RFC 8949, appendix A, and what they mean.
EXAMPLES = [
    ("00", 0),
    ("17", 23),
    ("1818", 24),
    ("1903e8", 1000),
    ("1a000f4240", 1_000_000),
    ("1b000000e8d4a51000", 1_000_000_000_000),
    ("20", -1),
    ("3903e7", -1000),
    ("fb3ff199999999999a", 1.1),
    ("f4", False),
    ("f5", True),
    ("f6", None),
    ("60", ""),
    ("6161", "a"),
    ("62c3bc", "ü"),
    ("80", []),
    ("83010203", [1, 2, 3]),
    ("8301820203820405", [1, [2, 3], [4, 5]]),
    ("a0", {}),
    ("a26161016162820203", {"a": 1, "b": [2, 3]}),
]


@pytest.mark.parametrize(("text", "value"), EXAMPLES)
def test_examples_of_the_rfc(text: str, value: Any) -> None:
    assert decode(bytes.fromhex(text)) == value
    assert encode(value) == bytes.fromhex(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("f93e00", 1.5),
        ("fa47c35000", 100000.0),
        ("f7", None),
        ("9fff", []),
        ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
        ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
        ("7f657374726561646d696e67ff", "streaming"),
        ("5f41014102ff", "AQI="),
        ("d823615b", "["),  # tags other than of times mean nothing: this one would be a pattern
        ("4401020304", "AQIDBA=="),  # bytes are base64 text in a JSON document
        ("c11903e8", 1.0),  # the SDK for Java counts milliseconds
        ("d82076687474703a2f2f7777772e6578616d706c652e636f6d", "http://www.example.com"),
    ],
)
def test_forms_that_are_read_but_not_written(text: str, value: Any) -> None:
    assert decode(bytes.fromhex(text)) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "18",  # ends early
        "0000",  # two items
        "62c3",
        "61ff",  # not UTF-8
        "1c",  # reserved
        "ff",
        "81ff",
        "a1ff00",
        "bf6161ff",  # a key without a value
        "1fff",
        "f0",
        "a1820102f6",  # a list as a key
        "a101f6",  # a number as a key
        "81" * 100 + "00",
    ],
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode(bytes.fromhex(text))


def test_data_and_times_in_their_own_types() -> None:
    answer = {
        "Records": [{"Data": "AQID", "ApproximateArrivalTimestamp": 1700000000.123, "PartitionKey": "k"}]
    }
    packed = encode(answer)
    assert b"\x64Data\x43\x01\x02\x03" in packed
    assert b"\xc1\x1b" + (1700000000123).to_bytes(8, "big") in packed
    assert decode(packed) == answer


def test_what_has_no_place_in_a_document() -> None:
    with pytest.raises(TypeError, match="bytes"):
        encode({"a": b"raw"})


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=30,
)


@given(_values)
def test_a_document_comes_back(value: Any) -> None:
    names = {"Data", "Timestamp", "ApproximateArrivalTimestamp"}
    assume(not names & set(json.dumps(value).split('"')))  # those are other types, see above
    back = decode(encode(value))
    assert back == value or (isinstance(value, float) and math.isnan(value))


@given(st.binary(max_size=60))
def test_noise_is_refused_or_read(noise: bytes) -> None:
    try:
        decode(noise)
    except ValueError:
        return


def test_a_server_without_cbor2_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.cbor, "is_installed", lambda: False)
    headers = {"x-amz-target": "Kinesis_20131202.ListStreams", "content-type": "application/x-amz-cbor-1.1"}
    status, kind, body = server.FakeAwsServer(FakeAws()).respond(Request("POST", "/", headers, b"\xa0"))
    assert (status, kind) == (415, "application/x-amz-json-1.1")
    assert isinstance(body, bytes)
    assert b"cbor2" in body
