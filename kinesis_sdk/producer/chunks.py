"""What `Producer.put_many` hands over under one lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

_CHUNK_RECORDS = 256
_CHUNK_BYTES = 1024 * 1024
_CHUNK_SECONDS = 0.01
"""Where `put_many` ends a chunk. Its records are not in the buffer's accounts yet, and they keep others waiting."""


def chunks_of(records: Iterable[Any], clock: Callable[[], float]) -> Iterator[Sequence[Any]]:
    """Cut the records of `put_many` into what may go under one lock.

    Whatever is not plain (see `Engine.accept_many`) comes alone, and at once: its bytes may change later.
    """
    if type(records) in {list, tuple}:
        for start in range(0, len(records), _CHUNK_RECORDS):  # type: ignore[arg-type]
            yield records[start : start + _CHUNK_RECORDS]  # type: ignore[index]
        return
    chunk: list[Any] = []
    size = 0
    began = 0.0
    try:
        for item in records:
            if type(item) is not tuple or len(item) != 2 or type(item[1]) is not bytes:
                yield chunk
                chunk, size = [], 0
                yield (item,)
                continue
            now = clock()
            if not chunk:
                began = now
            chunk.append(item)
            size += len(item[1])
            if len(chunk) >= _CHUNK_RECORDS or size >= _CHUNK_BYTES or now - began > _CHUNK_SECONDS:
                yield chunk
                chunk, size = [], 0
    except Exception:
        # What the iterable gave before it raised.
        yield chunk
        raise
    yield chunk
