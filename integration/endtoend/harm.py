"""Faults on the wire of a run, by name, through the TCP proxy."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from integration.endtoend.run import Run
from integration.proxy import Proxy

EFFECT = 20.0
"""Seconds for which a fault goes on after the wire is healed: calls that hang end by their own timeouts (15 s)."""

CUT = "cut event streams"
BLACK_HOLE = "black hole"
HARMS: Mapping[str, Mapping[str, Any]] = {
    "delay": {"delay": 0.5},
    "reset mid-body": {"reset_after": 150, "probability": 0.3},
    "truncate": {"truncate_after": 150, "probability": 0.3},
    "stall": {"stall": True, "probability": 0.3},
    CUT: {},
    BLACK_HOLE: {"black_hole": True},
}

_BETWEEN_CUTS = 0.7


class Wire:
    """Harms a run's wire for a while.

    Attributes:
        cuts: Event streams that were cut so far.
    """

    def __init__(self, run: Run, proxy: Proxy) -> None:
        self.cuts = 0
        self._run = run
        self._proxy = proxy
        self._began = 0.0
        self._name = ""
        self._until = 0.0

    def begin(self, name: str, seconds: float) -> None:
        """Harm it; it heals by itself, or by the next `begin`."""
        self.heal()
        self._run.note("wire", f"wire: {name} for {seconds:.1f} s", seconds)
        self._began, self._name = time.time(), name
        self._until = time.monotonic() + seconds
        self._proxy.configure(**HARMS[name])
        if name == CUT:
            self._cut()
        self._run.after(seconds, lambda began=self._began: self._heal_if(began))

    def heal(self) -> None:
        """Do no more harm."""
        if not self._name:
            return
        self._proxy.heal()
        self._name = ""
        self._run.harmed(self._began, "wire", EFFECT)

    def _heal_if(self, began: float) -> None:
        if began == self._began:
            self.heal()

    def _cut(self) -> None:
        if self._name == CUT and time.monotonic() < self._until:
            self.cuts += self._proxy.cut(streams_only=True)
            self._run.after(_BETWEEN_CUTS, self._cut)
