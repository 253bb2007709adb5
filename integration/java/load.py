"""A steady load from our producer, and its acknowledgements."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from integration.java.evidence import Delivery
from integration.java.processes import Stage
from kinesis_sdk import Producer, ProducerConfig
from kinesis_sdk.producer import PutResult

_TICK = 0.05


class Load:
    """Puts aggregated records at an even pace from a thread until the with statement ends, and waits for all of them.

    The data of a record is its number. Keys look random unless ``place`` chooses the shard.

    Args:
        stage: The account.
        stream: Stream name.
        rate: User records per second.
        place: Returns the explicit hash key of a record by its number; None lets its key decide.
        prefix: Start of each record's data, if several loads feed one stream.
        settings: `ProducerConfig`'s.

    Attributes:
        stored: Positions by data, once the with statement has ended.
    """

    def __init__(
        self,
        stage: Stage,
        stream: str,
        rate: int,
        *,
        place: Callable[[int], str] | None = None,
        prefix: str = "",
        **settings: Any,
    ) -> None:
        self._stream = stream
        self._rate = rate
        self._place = place
        self._prefix = prefix
        config = ProducerConfig(record_max_buffered_time=0.2, **settings)
        self._producer = Producer(config, endpoint_url=stage.kinesis_url)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._futures: list[Any] = []
        self.stored: dict[str, PutResult] = {}

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.close()
        self.stored = {
            f"{self._prefix}{number}": future.result() for number, future in enumerate(self._futures)
        }

    @property
    def count(self) -> int:
        """Number of records put so far."""
        return len(self._futures)

    def acknowledged(self) -> list[PutResult]:
        """Positions of the records acknowledged so far."""
        return [future.result() for future in list(self._futures) if future.done()]

    def backlog(self, shard: str, delivered: Iterable[Delivery]) -> int:
        """Return the number of a shard's acknowledged records that are not delivered yet."""
        stored = {put.sequence_number for put in self.acknowledged() if put.shard_id == shard}
        return len(stored - {str(one.number) for one in delivered})

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(_TICK):
            due = int((time.monotonic() - began) * self._rate)
            for number in range(len(self._futures), due):
                place = None if self._place is None else self._place(number)
                data = f"{self._prefix}{number}".encode()
                self._futures.append(self._producer.put(self._stream, f"key-{number}", data, place))
