"""Identities of the records that an application names (``dedup_id``).

An identity is a part of a digest of namespace, hash key and name, so it has a fixed size and does not reveal the name. Readers compare
identities within a shard, and have neither the namespace nor the secret. If two different records had one identity, readers would leave
the second record out. So the digest contains everything that distinguishes records:

- The hash key: a shard has many keys, and order 1 of one customer is not order 1 of another customer.
- The namespace: two services may use the name ``order-78`` for different facts.
- The secret, if there is one: a program that may put records, and guesses a name, cannot compute its identity and take it first.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from kinesis_sdk.common.errors import ConfigError, InvalidRecordError
from kinesis_sdk.common.once.identity import MAX_WINDOW, Identity
from kinesis_sdk.common.once.table import INCARNATION_SIZE

MAX_NAME_LENGTH = 256
"""Maximum characters of a ``dedup_id``."""

MAX_NAMESPACE_LENGTH = 128
"""Maximum characters of a namespace."""

SECRET_SIZES = (16, 64)
"""Minimum and maximum bytes of a secret. BLAKE2b accepts keys of at most 64 bytes."""

_NUMBER_SIZE = 6


class Names:
    """The names of a namespace, as identities of records. Thread-safe.

    Without a ``namespace``, every name is rejected. ``secret`` is the key of the digest.
    """

    def __init__(self, namespace: str | None, secret: bytes | None = None) -> None:
        self._digest = None
        if namespace is not None:
            text = namespace.encode()
            self._digest = blake2b(
                len(text).to_bytes(2, "big") + text,
                key=secret or b"",
                digest_size=INCARNATION_SIZE + _NUMBER_SIZE,
            )

    def identity(
        self, name: Any, window: Any, hash_key: bytes, *, first: int | None = None, again: bool = False
    ) -> Identity:
        """Return the identity of a record, from its ``dedup_id``, its ``dedup_window`` (seconds) and its effective hash key.

        ``first`` and ``again`` describe the caller's knowledge about earlier attempts; see `Identity`.

        Raises:
            InvalidRecordError: If the name or its window is not valid, or there is no namespace.
        """
        if self._digest is None:
            raise InvalidRecordError(
                "dedup_id",
                "needs ProducerConfig(idempotent=True, dedup_namespace=…), because names of different services must not collide",
            )
        if not isinstance(name, str):
            raise InvalidRecordError("dedup_id", f"expected str, not {type(name).__name__}")
        if not 1 <= len(name) <= MAX_NAME_LENGTH:
            raise InvalidRecordError(
                "dedup_id", f"expected 1 to {MAX_NAME_LENGTH} characters, not {len(name):,}"
            )
        check_dedup_window(window)
        digest = self._digest.copy()
        try:
            digest.update(hash_key + name.encode())
        except UnicodeEncodeError as error:
            raise InvalidRecordError("dedup_id", "not encodable as UTF-8 (a lone surrogate)") from error
        found = digest.digest()
        number = int.from_bytes(found[INCARNATION_SIZE:], "big")
        return Identity(found[:INCARNATION_SIZE], number, None, float(window), first=first, again=again)


def check_dedup_window(window: Any) -> None:
    """Raise InvalidRecordError unless a value is a ``dedup_window``: 1 to 300 seconds."""
    if isinstance(window, bool) or not isinstance(window, (int, float)) or not 1 <= window <= MAX_WINDOW:
        raise InvalidRecordError("dedup_window", f"expected 1 to {MAX_WINDOW:g} seconds, not {window!r}")


def check_dedup_namespace(field: str, value: Any) -> None:
    """Raise ConfigError unless a value is a namespace: text of 1 to 128 characters."""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_NAMESPACE_LENGTH:
        raise ConfigError(field, value, f"1 to {MAX_NAMESPACE_LENGTH} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(field, value, "text that is encodable as UTF-8 (no lone surrogates)") from None


def check_dedup_secret(field: str, value: Any) -> None:
    """Raise ConfigError unless a value is a secret of 16 to 64 bytes. The error does not quote the value."""
    least, most = SECRET_SIZES
    if not isinstance(value, bytes):
        raise ConfigError(field, f"a value of type {type(value).__name__}", f"{least} to {most} bytes")
    if not least <= len(value) <= most:
        raise ConfigError(field, f"{len(value):,} bytes", f"{least} to {most} bytes")
