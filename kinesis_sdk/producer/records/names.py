"""Identities of the records that an application names (``dedup_id``).

An identity is a part of a digest of namespace, hash key and name, so it tells nothing about the name, and has a fixed size. Readers
compare identities within a shard, and know neither namespace nor secret. If two different records had one identity, readers would leave
the second one out. So the digest has everything that tells records apart:

- The hash key: a shard has many keys, and the order 1 of another customer is not the order 1 of this one.
- The namespace: two services may call different facts ``order-78``.
- The secret, if there is one: a program that may put records, and guesses a name, cannot compute its identity and take it first.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from kinesis_sdk.common.errors import InvalidRecordError
from kinesis_sdk.common.once.table import INCARNATION_SIZE
from kinesis_sdk.producer.records.identity import Identity

MAX_WINDOW = 300.0
"""Longest window, in seconds, in which readers recognize a record that the application named."""

DEFAULT_WINDOW = 300.0

MAX_NAME_LENGTH = 256
"""Maximum characters of a ``dedup_id``."""

_NUMBER_SIZE = 6


class Names:
    """The names of a namespace, as identities of records. Thread-safe. ``secret`` is the key of the digest."""

    def __init__(self, namespace: str, secret: bytes | None = None) -> None:
        text = namespace.encode()
        self._digest = blake2b(
            len(text).to_bytes(2, "big") + text,
            key=secret or b"",
            digest_size=INCARNATION_SIZE + _NUMBER_SIZE,
        )

    def identity(self, name: Any, window: Any, hash_key: bytes) -> Identity:
        """Return the identity of a record, from its ``dedup_id``, its ``dedup_window`` (seconds) and its effective hash key.

        Raises:
            InvalidRecordError: If the name or its window is not valid.
        """
        if not isinstance(name, str):
            raise InvalidRecordError("dedup_id", f"expected str, not {type(name).__name__}")
        if not 1 <= len(name) <= MAX_NAME_LENGTH:
            raise InvalidRecordError(
                "dedup_id", f"expected 1 to {MAX_NAME_LENGTH} characters, not {len(name):,}"
            )
        if isinstance(window, bool) or not isinstance(window, (int, float)) or not 1 <= window <= MAX_WINDOW:
            raise InvalidRecordError("dedup_window", f"expected 1 to {MAX_WINDOW:g} seconds, not {window!r}")
        digest = self._digest.copy()
        try:
            digest.update(hash_key + name.encode())
        except UnicodeEncodeError as error:
            raise InvalidRecordError("dedup_id", "not encodable as UTF-8 (a lone surrogate)") from error
        found = digest.digest()
        number = int.from_bytes(found[INCARNATION_SIZE:], "big")
        return Identity(found[:INCARNATION_SIZE], number, None, float(window))
