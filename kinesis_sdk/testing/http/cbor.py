"""CBOR (RFC 8949): ``application/x-amz-cbor-1.1``, which the AWS SDK for Java uses with Kinesis. Needs cbor2, from the extra ``fake``.

The fake's documents are JSON objects in wire form. Their CBOR form differs in two places, which the functions here
translate: ``Data`` is a byte string instead of base64 text, and a time is tag 1 with whole milliseconds instead of a
number of seconds.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from importlib.util import find_spec
from io import BytesIO
from typing import Any

CONTENT_TYPE = "application/x-amz-cbor-1.1"

_EPOCH_TAG = 1
_MAX_DEPTH = 64
_TIMES = frozenset(
    {
        "ApproximateArrivalTimestamp",
        "ConsumerCreationTimestamp",
        "StreamCreationTimestamp",
        "Timestamp",
    }
)
_BLOBS = frozenset({"Data"})
_WITH_A_MEANING = (0, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 100, 256, 258, 260, 261, 1004, 43000, 55799)
"""Tags that cbor2 would turn into dates, patterns, references and so on. AWS clients do not write them."""


def is_installed() -> bool:
    """Return whether cbor2 is installed."""
    return find_spec("cbor2") is not None


def _seconds(value: Any, _immutable: object) -> Any:
    return value / 1000 if isinstance(value, (int, float)) else value


def _untagged(value: Any, _immutable: object) -> Any:
    return value


_TAGS = {**dict.fromkeys(_WITH_A_MEANING, _untagged), _EPOCH_TAG: _seconds}


def decode(data: bytes) -> Any:
    """Convert a CBOR document to a JSON document.

    Raises ValueError if the data is not CBOR, is nested too deeply, or has values that JSON lacks.
    """
    import cbor2

    source = BytesIO(data)
    try:
        value = cbor2.CBORDecoder(
            source, semantic_decoders=_TAGS, tag_hook=lambda tag, _immutable: tag.value, max_depth=_MAX_DEPTH
        ).decode()
    except cbor2.CBORDecodeError as error:
        raise ValueError(str(error)) from None
    if source.tell() != len(data):
        raise ValueError("not one CBOR item")
    return _json(value, cbor2.undefined)


def _json(value: Any, undefined: object) -> Any:
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise ValueError("CBOR maps with keys other than text are not supported")
        return {name: _json(member, undefined) for name, member in value.items()}
    if isinstance(value, list):
        return [_json(member, undefined) for member in value]
    if isinstance(value, bytes):
        return b2a_base64(value, newline=False).decode()
    if value is undefined:
        return None
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise ValueError(f"CBOR with a value of type {type(value).__name__} is not understood")


def encode(value: Any) -> bytes:
    """Convert a JSON document to a CBOR document. Raises TypeError for a type that JSON lacks."""
    import cbor2

    return cbor2.dumps(_wire(value, cbor2.CBORTag))


def _wire(value: Any, tag: Callable[[int, Any], Any]) -> Any:
    if isinstance(value, dict):
        return {name: _member(name, member, tag) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_wire(member, tag) for member in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(f"{type(value).__name__} has no place in a document")


def _member(name: str, value: Any, tag: Callable[[int, Any], Any]) -> Any:
    if name in _BLOBS and isinstance(value, str):
        return a2b_base64(value)
    if name in _TIMES and isinstance(value, (int, float)):
        return tag(_EPOCH_TAG, round(value * 1000))
    return _wire(value, tag)
