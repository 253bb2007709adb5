from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone

import pytest

from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.spark.page_gate import LARGE_PAGE, MAX_LARGE_PAGES, PageGate
from tests import HANG

THREADS = MAX_LARGE_PAGES + 3


def page(size: int) -> list[KinesisRecord]:
    return [KinesisRecord(bytes(size), "k", "1", datetime(2026, 1, 31, tzinfo=timezone.utc))]


class Readers:
    """Threads that read one page each through a gate, and stay inside until they are released."""

    def __init__(self, gate: PageGate, read: Callable[[], list[KinesisRecord]]) -> None:
        self.entered = threading.Semaphore(0)
        self.release = threading.Semaphore(0)
        self._gate = gate
        self._read = read
        self.inside = self.most = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def _pages(self) -> Iterator[list[KinesisRecord]]:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.entered.release()
        assert self.release.acquire(timeout=HANG)
        with self._lock:
            self.inside -= 1
        yield self._read()

    def _run(self) -> None:
        for _ in self._gate.pages(self._pages()):
            pass

    def wait_inside(self, count: int) -> None:
        for _ in range(count):
            assert self.entered.acquire(timeout=HANG)

    def end(self) -> None:
        for _ in self._threads:
            self.release.release()
        for thread in self._threads:
            thread.join(HANG)
            assert not thread.is_alive()


@pytest.mark.parametrize("before", [[], [0, LARGE_PAGE]], ids=["at first", "after a small page"])
def test_few_threads_read_large_pages(before: list[int]) -> None:
    gate = PageGate()
    assert len(list(gate.pages(page(size) for size in before))) == len(before)
    readers = Readers(gate, lambda: page(LARGE_PAGE))
    readers.wait_inside(MAX_LARGE_PAGES)
    readers.end()
    assert readers.most == MAX_LARGE_PAGES


def test_one_small_page_lets_all_threads_in() -> None:
    gate = PageGate()
    assert list(gate.pages(iter([page(LARGE_PAGE - 1)])))
    readers = Readers(gate, lambda: page(0))
    readers.wait_inside(THREADS)
    readers.end()


def test_a_thread_that_sleeps_keeps_nobody_out() -> None:
    gate = PageGate()
    sleeping, awake = threading.Semaphore(0), threading.Event()

    def sleep(seconds: float) -> None:
        assert seconds == 5.0
        sleeping.release()
        assert awake.wait(HANG)

    rest = gate.outside(sleep)

    def throttled() -> Iterator[list[KinesisRecord]]:
        rest(5.0)
        yield page(0)

    waiting = [
        threading.Thread(target=lambda: list(gate.pages(throttled())), daemon=True) for _ in range(THREADS)
    ]
    for thread in waiting:
        thread.start()
    for _ in waiting:
        assert sleeping.acquire(timeout=HANG), "more threads sleep than may read"
    awake.set()
    for thread in waiting:
        thread.join(HANG)
        assert not thread.is_alive()


def test_a_range_that_fails_or_is_closed_leaves_the_gate() -> None:
    gate = PageGate()

    def fails() -> Iterator[list[KinesisRecord]]:
        yield page(LARGE_PAGE)
        raise OSError("on purpose")

    for _ in range(MAX_LARGE_PAGES):
        pages = gate.pages(fails())
        assert next(pages)
        pages.close()  # type: ignore[attr-defined]
        with pytest.raises(OSError, match="on purpose"):
            list(gate.pages(fails()))
    readers = Readers(gate, lambda: page(LARGE_PAGE))
    readers.wait_inside(MAX_LARGE_PAGES)
    readers.end()
