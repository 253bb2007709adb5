"""Opaque tokens: shard iterators and page tokens.

A token consists of its fields and a checksum in URL-safe base64. The checksum shows whether the fake issued a token.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib

_SEPARATOR = "/"


# Cached, because most tokens come back soon after being issued.
@functools.lru_cache(maxsize=1024)
def _checksum(text: str) -> str:
    return hashlib.md5(f"kinesis_sdk fake {text}".encode()).hexdigest()[:16]


def seal(*fields: str | int) -> str:
    """Create a token from `fields`, none of which may contain a slash.

    The token has at most 512 characters even if names and numbers are as long as Kinesis allows.
    """
    text = _SEPARATOR.join(map(str, fields))
    return base64.urlsafe_b64encode(f"{text}{_SEPARATOR}{_checksum(text)}".encode()).decode()


def unseal(token: str) -> list[str] | None:
    """Return the fields of a token; None if it was changed, or if the fake did not issue it."""
    try:
        text = base64.urlsafe_b64decode(token.encode()).decode()
    except (binascii.Error, UnicodeError, ValueError):
        return None
    body, _, checksum = text.rpartition(_SEPARATOR)
    if not body or checksum != _checksum(body):
        return None
    return body.split(_SEPARATOR)
