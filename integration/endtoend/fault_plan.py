"""Faults on the wire of a run, by name, through the TCP proxy."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from integration.endtoend.run import Run
from integration.proxy import Proxy

EFFECT = 20.0
"""Seconds for which a fault has effects after the wire is healed: hanging calls end by their own timeouts (15 s)."""

CUT = "cut event streams"
BLACK_HOLE = "black hole"
WIRE_FAULTS: Mapping[str, Mapping[str, Any]] = {
    "delay": {"delay": 0.5},
    "reset mid-body": {"reset_after": 150, "probability": 0.3},
    "truncate": {"truncate_after": 150, "probability": 0.3},
    "stall": {"stall": True, "probability": 0.3},
    CUT: {},
    BLACK_HOLE: {"black_hole": True},
}

_BETWEEN_CUTS = 0.7


class Wire:
    """Injects faults into a run's wire for a while. `cuts` counts the event streams that were cut."""

    def __init__(self, run: Run, proxy: Proxy) -> None:
        self.cuts = 0
        self._run = run
        self._proxy = proxy
        self._started_at = 0.0
        self._name = ""
        self._until = 0.0

    def begin(self, name: str, seconds: float) -> None:
        """Begin a fault. It ends after `seconds`, or with the next `begin`."""
        self.heal()
        self._run.note("wire", f"wire: {name} for {seconds:.1f} s", seconds)
        self._started_at, self._name = time.time(), name
        self._until = time.monotonic() + seconds
        self._proxy.configure(**WIRE_FAULTS[name])
        if name == CUT:
            self._cut()
        self._run.after(seconds, lambda started_at=self._started_at: self._heal_if(started_at))

    def heal(self) -> None:
        """End the fault."""
        if not self._name:
            return
        self._proxy.heal()
        self._name = ""
        self._run.record_outage(self._started_at, "wire", EFFECT)

    def _heal_if(self, started_at: float) -> None:
        if started_at == self._started_at:
            self.heal()

    def _cut(self) -> None:
        if self._name == CUT and time.monotonic() < self._until:
            self.cuts += self._proxy.cut(streams_only=True)
            self._run.after(_BETWEEN_CUTS, self._cut)
