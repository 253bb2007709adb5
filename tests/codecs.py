"""Codecs of aggregates for tests: one that changes nothing, and one with sizes as a service of chance draws them."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from kinesis_sdk.common.codec import MAX_RATIO


@dataclass
class Identity:
    """Seals a body as it is, so that the plain form is always the smaller one."""

    name: str = "same"

    def seal(self, body: bytes) -> bytes:
        return body

    def unseal(self, sealed: bytes, size: int) -> bytes:
        if len(sealed) != size:
            raise ValueError("not the size that was declared")
        return sealed


@dataclass
class Deflated:
    """Really makes bodies smaller."""

    name: str = "deflated"

    def seal(self, body: bytes) -> bytes:
        sealed = zlib.compress(body)
        return sealed.ljust(-(-len(body) // MAX_RATIO), b"\0")

    def unseal(self, sealed: bytes, size: int) -> bytes:
        opener = zlib.decompressobj()
        try:
            body = opener.decompress(sealed, size + 1)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if len(body) != size:
            raise ValueError("not the size that was declared")
        return body


@dataclass
class Drawn:
    """Seals each body into random bytes, from a 200th of its size to twice as many, and remembers it."""

    seed: int
    name: str = "drawn"
    sealed: dict[bytes, bytes] = field(default_factory=dict)
    failing: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.rng = random.Random(f"codec {self.seed}")

    def seal(self, body: bytes) -> bytes:
        if self.failing():
            raise MemoryError
        ratio = self.rng.choice([1 / 200, self.rng.random(), 2 * self.rng.random()])
        sealed = b"%08d" % len(self.sealed) + bytes(int(len(body) * max(ratio, 1 / 200)))
        self.sealed[sealed] = body
        return sealed

    def unseal(self, sealed: bytes, size: int) -> bytes:
        body = self.sealed.get(sealed, b"")
        if len(body) != size:
            raise ValueError("not the size that was declared")
        return body
