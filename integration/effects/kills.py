"""Two processes that kill themselves at chosen steps, and what starts them again."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from integration.endtoend.processes import ChildProcess

KILLS_AT_EACH = 3
"""Kills at each step, by all processes together."""


class Steps:
    """Kills its process at some of the steps that it is told of.

    Args:
        settings: Those that `Pair` gives.
        chances: Chance of a kill by step: those that are reached more often have smaller ones.
    """

    def __init__(self, settings: Mapping[str, Any], chances: Mapping[str, float]) -> None:
        self._settings = settings
        self._chances = chances
        self._rng = random.Random(settings["seed"])

    def at(self, step: str) -> None:
        """Tell that a step is reached."""
        if not self._settings["kills_itself"] or self._rng.random() >= self._chances[step]:
            return
        with Path(self._settings["kills"]).open("a+") as kills:
            kills.seek(0)
            if kills.read().splitlines().count(step) >= KILLS_AT_EACH:
                return
            kills.write(f"{step}\n")
        os.kill(os.getpid(), signal.SIGKILL)

    def around(self, what: str, work: Callable[[], Any]) -> Any:
        """Call a function between the steps ``before WHAT`` and ``after WHAT``."""
        self.at(f"before {what}")
        result = work()
        self.at(f"after {what}")
        return result


class Pair:
    """Two processes; each that kills itself is started again with the same worker id."""

    def __init__(self, module: str, settings: Mapping[str, Any], folder: Path) -> None:
        self._module, self._folder = module, folder
        self._settings = settings
        self._kills = folder / "kills"
        self._kills.touch()
        self._started = 0
        self._processes: dict[str, ChildProcess] = {}

    def kills(self) -> Counter[str]:
        """Return the number of kills by step."""
        return Counter(self._kills.read_text().splitlines())

    def tend(self, *, kills: bool = True) -> None:
        """Start each process that is not running."""
        for name in ("w1", "w2"):
            process = self._processes.get(name)
            if process is not None and process.status is None:
                continue
            if process is not None:
                assert process.status == -signal.SIGKILL, process.tail()
                process.destroy()
            self._started += 1
            mine = {
                "worker_id": name,
                "kills_itself": kills,
                "kills": str(self._kills),
                "seed": self._started,
            }
            self._processes[name] = ChildProcess(
                self._module, f"{name}-{self._started}", {**self._settings, **mine}, self._folder, os.environ
            )

    def destroy(self) -> None:
        """End both processes at once."""
        for process in self._processes.values():
            process.destroy()
        self._processes.clear()
