"""Calls for many items at once, in a few threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

_One = TypeVar("_One")
_Result = TypeVar("_Result")


def for_each(
    things: Iterable[_One],
    work: Callable[[_One], _Result],
    on_result: Callable[[_One, _Result], None],
    *,
    threads: int,
    name: str,
) -> None:
    """Process many things in a few threads. An exception ends the work and is raised here; so does Ctrl-C, without waiting for calls.

    ``work`` is called in the threads. One thread at a time takes the next item, and one thread at a time calls ``on_result``.
    """
    todo = iter(things)
    turn, deliver = threading.Lock(), threading.Lock()
    failure: list[BaseException] = []
    stopped = threading.Event()

    def take_turns() -> None:
        while not failure and not stopped.is_set():
            with turn:
                try:
                    one = next(todo)
                except StopIteration:
                    return
            result = work(one)
            with deliver:
                if not stopped.is_set():
                    on_result(one, result)

    def guarded() -> None:
        try:
            take_turns()
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            failure.append(error)

    workers = [threading.Thread(target=guarded, name=f"{name}-{n}", daemon=True) for n in range(threads)]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        stopped.set()  # also after Ctrl-C: the threads end after their current calls
    if failure:
        raise failure[0]
