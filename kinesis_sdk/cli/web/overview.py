"""Reads of all applications for the console's start page: one pass at a time, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kinesis_sdk.admin import FleetView
from kinesis_sdk.admin.fleet.overview import ApplicationSummary, summarize, worst_first
from kinesis_sdk.admin.plain import plain

_LOGGER = logging.getLogger(__name__)

LookAtAll = Callable[[Sequence[str], Callable[[FleetView], None]], None]
"""Reads each named application once, and passes each view on."""


class Overview:
    """Memory of the latest view of each application. Thread-safe.

    ``read_fleets`` may block; ``spawn`` runs a function in a thread of its own.
    """

    def __init__(
        self, read_fleets: LookAtAll, *, spawn: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        self._read_fleets = read_fleets
        self._spawn = spawn or _spawn
        self._lock = threading.Lock()
        self._seen: dict[str, ApplicationSummary] = {}
        self._names: tuple[str, ...] = ()
        self._done = 0
        self._is_reading = False

    def read(self, names: Sequence[str]) -> None:
        """Start a pass over these applications, unless one is running."""
        with self._lock:
            if self._is_reading or not names:
                return
            self._is_reading, self._names, self._done = True, tuple(names), 0
            self._seen = {name: one for name, one in self._seen.items() if name in names}
        self._spawn(self._pass)

    def state(self, seen: Mapping[str, FleetView]) -> Mapping[str, Any]:
        """Return the applications seen so far, worst first, and the progress of the pass.

        Newer views of open pages, in ``seen``, replace the views of the pass.
        """
        with self._lock:
            found = dict(self._seen)
            reading, done, total = self._is_reading, self._done, len(self._names)
        for name, view in seen.items():
            if name not in found or view.at > found[name].at:
                found[name] = summarize(view)
        return {
            "reading": reading,
            "done": done,
            "total": total,
            "applications": plain(worst_first(found.values())),
        }

    def _pass(self) -> None:
        try:
            self._read_fleets(self._names, self._take)
        except Exception as error:  # noqa: BLE001 - it is logged; the page shows what was not read
            place = "".join(traceback.format_tb(error.__traceback__))
            _LOGGER.error(
                "checking all applications failed: %s, raised here:\n%s", type(error).__name__, place
            )
        finally:
            with self._lock:
                self._is_reading = False

    def _take(self, view: FleetView) -> None:
        with self._lock:
            self._done += 1
            self._seen[view.application] = summarize(view)


def _spawn(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="kinesis-sdk-ui-overview", daemon=True).start()
