"""Zstandard: Python's own module from version 3.14 on, otherwise the package ``zstandard`` (extra ``zstd``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

from kinesis_sdk.common.codec import MAX_INNER_SIZE, MAX_RATIO
from kinesis_sdk.common.extras import install_hint

LEVEL = 1
"""Level 3 would make JSON and logs up to 5 % smaller. It takes 1.1 to 1.6 times as long, and twice as long while its larger tables are
not cached."""

_SKIPPED = b"\x50\x2a\x4d\x18"
"""First bytes of a frame that decoders skip; the length follows."""


class Library(NamedTuple):
    """Functions of a Zstandard library, for one call at a time.

    Attributes:
        compress: Returns one frame that declares the size of its content.
        content_size: Returns the size that a frame declares; None or a negative number if it declares none.
        decompress: Returns the content of the first frame. Its size must have been checked.
        error: Raised by ``content_size`` and ``decompress`` for a damaged frame.
    """

    compress: Callable[[bytes], bytes]
    content_size: Callable[[bytes], int | None]
    decompress: Callable[[bytes, int], bytes]
    error: type[Exception]


def library() -> Library:
    """Return the library; raise an ImportError that names the extra if there is none."""
    try:
        return _of_python(import_module("compression.zstd"))
    except ImportError:
        return _of_package()


def _of_python(zstd: Any) -> Library:
    options = {zstd.DecompressionParameter.window_log_max: MAX_INNER_SIZE.bit_length() - 1}

    def decompress(sealed: bytes, size: int) -> bytes:
        data: bytes = zstd.ZstdDecompressor(options=options).decompress(sealed, size)
        return data

    return Library(
        lambda body: zstd.compress(body, LEVEL),
        lambda sealed: zstd.get_frame_info(sealed).decompressed_size,
        decompress,
        zstd.ZstdError,
    )


def _of_package() -> Library:
    try:
        import zstandard
    except ImportError as error:
        raise ImportError(install_hint("compression='zstd'", "zstandard", "zstd")) from error
    opener = zstandard.ZstdDecompressor(max_window_size=MAX_INNER_SIZE)
    return Library(
        zstandard.ZstdCompressor(level=LEVEL).compress,
        zstandard.frame_content_size,
        lambda sealed, size: opener.decompress(sealed, max_output_size=size),
        zstandard.ZstdError,
    )


class ZstdCodec:
    """Compresses bodies of aggregates with Zstandard. Thread-safe.

    Raises:
        ImportError: If the library is not installed.
    """

    name = "zstd"

    def __init__(self) -> None:
        # One library for each concurrent call, not for each thread: the first use of a library costs as much as compressing 50 KB, and
        # a producer has many threads. The library that was used last comes first, because its tables are in the CPU's cache.
        self._idle = [library()]

    @contextmanager
    def _library(self) -> Iterator[Library]:
        try:
            found = self._idle.pop()
        except IndexError:
            found = library()
        try:
            yield found
        finally:
            self._idle.append(found)

    def seal(self, body: bytes) -> bytes:
        """Return the body as one frame. Pad a frame below the minimum size with bytes that decoders skip."""
        with self._library() as found:
            sealed = found.compress(body)
        missing = -(-len(body) // MAX_RATIO) - len(sealed)
        if missing <= 0:
            return sealed
        padding = max(0, missing - len(_SKIPPED) - 4)
        return b"".join((sealed, _SKIPPED, padding.to_bytes(4, "little"), bytes(padding)))

    def unseal(self, sealed: bytes, size: int) -> bytes:
        """Return the content of the frame; raise ValueError if it is damaged, or its size is not exactly ``size``."""
        with self._library() as found:
            try:
                # Checked first, because decoders allocate the size that a frame declares.
                if found.content_size(sealed) != size:
                    raise ValueError("the frame declares another size")
                body = found.decompress(sealed, size)
            except found.error as error:
                raise ValueError(str(error)) from error
        if len(body) != size:
            raise ValueError("the frame has another size")
        return body
