"""Base64 encoding, which Kinesis uses for every payload.

With pybase64 (extra ``fast``), it costs a tenth for payloads of the size of an aggregate. The results and the rejected
inputs are the same.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Callable

__all__ = ["decode", "encode"]


def encode_by_standard_library(data: bytes) -> bytes:
    """Encode bytes as base64 without a line break."""
    return b2a_base64(data, newline=False)


encode: Callable[[bytes], bytes] = encode_by_standard_library
"""Encode bytes as base64 without a line break."""

decode: Callable[[str], bytes] = a2b_base64
"""Decode base64; characters outside its alphabet are ignored.

Raises:
    ValueError: If padding is missing (`binascii.Error`), or if the text is not ASCII.
"""

try:
    from pybase64 import b64decode, b64encode
except ImportError:
    pass  # use the standard library
else:

    def _decode(text: str) -> bytes:
        try:
            return b64decode(text, None, True)
        except ValueError:  # unusual input: the standard library decides how to read it
            return a2b_base64(text)

    encode, decode = b64encode, _decode
