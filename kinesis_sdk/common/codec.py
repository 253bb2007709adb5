"""Codecs of aggregates: they compress the body of an aggregate before it is sent.

A codec handles only bytes. All codecs share the same envelope: an aggregate of one record, whose data is the sealed body, and whose tag
`CODEC_KEY` describes how to open it. `Aggregate.seal_with` writes the envelope, `open_aggregate` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import NamedTuple, Protocol

from kinesis_sdk.common.errors import CodecUnavailableError

CODEC_KEY = "z1"
"""Key of the tag that names the codec of a sealed body."""

MAX_INNER_SIZE = 16 * 1024 * 1024
"""Maximum bytes of a body; readers do not open a larger body."""

MAX_RATIO = 256
"""Maximum ratio of a body's size to the size of its sealed form; readers do not open a body that grows more."""


class AggregateCodec(Protocol):
    """Compresses bodies of aggregates. Called by any thread, and by several threads at the same time.

    Attributes:
        name: Name in the format, 1 to 16 lower-case letters and digits.
    """

    @property
    def name(self) -> str:
        """Name in the format."""
        ...

    def seal(self, body: bytes) -> bytes:
        """Return the sealed form of a body, with at least 1/`MAX_RATIO` of its size."""
        ...

    def unseal(self, sealed: bytes, size: int) -> bytes:
        """Return the body of a sealed form.

        Args:
            sealed: The sealed form; it may be forged.
            size: Size of the body in bytes, declared by its producer, at most `MAX_INNER_SIZE`.

        Raises:
            ValueError: If the body does not have exactly this size, or the form is damaged. Even then, this takes no more memory than
                ``size`` bytes need.
        """
        ...


HOMES: dict[str, str] = {"zstd": "kinesis_sdk.compression.zstd:ZstdCodec"}
"""Module and class of each codec by its name. The class takes no arguments, and raises ImportError if its library is not installed."""

_FORM = re.compile(r"([a-z0-9]{1,16});(\d{1,8});(\d{1,8})")

_LEAST_RECORD = 6
"""Minimum bytes of a user record in a body: two fields, each with a length or an index, within a third field."""

_made: dict[str, AggregateCodec] = {}


def codec_named(name: str) -> AggregateCodec:
    """Return the codec with a name.

    Raises:
        CodecUnavailableError: If there is no such codec, or if its library is not installed.
    """
    codec = _made.get(name)
    if codec is None:
        home = HOMES.get(name)
        if home is None:
            known = ", ".join(sorted(HOMES))
            raise CodecUnavailableError(
                name,
                f"this version does not know this codec (known: {known}). Update this reader; if no producer of yours wrote the record, "
                "make workers skip it with `kinesis-sdk leases skip-to`",
            )
        module, _, kind = home.partition(":")
        try:
            codec = getattr(import_module(module), kind)()
        except ImportError as error:
            raise CodecUnavailableError(name, str(error)) from error
        _made[name] = codec
    return codec


@contextmanager
def locating(*, stream: str | None, shard_id: str | None) -> Iterator[None]:
    """Add the names ``stream`` and ``shard_id``, as far as they are known, to a `CodecUnavailableError` from inside the block."""
    try:
        yield
    except CodecUnavailableError as error:
        raise error.located(stream=stream, shard_id=shard_id) from error.__cause__


class SealedForm(NamedTuple):
    """Description of the sealed body of an aggregate, by its producer.

    Attributes:
        codec: Name of the codec.
        size: Bytes of the body.
        records: Number of user records in the body.
    """

    codec: str
    size: int
    records: int

    @property
    def text(self) -> str:
        """Value of the tag."""
        return ";".join(map(str, self))


def form_of(text: str, sealed_size: int) -> SealedForm | None:
    """Return the sealed form that a tag describes; None if it is malformed, or its sizes are out of bounds.

    Args:
        text: Value of the tag.
        sealed_size: Bytes of the sealed body.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    form = SealedForm(match[1], int(match[2]), int(match[3]))
    plausible = 0 < form.size <= min(MAX_INNER_SIZE, MAX_RATIO * sealed_size)
    return form if plausible and 0 < form.records * _LEAST_RECORD <= form.size else None
