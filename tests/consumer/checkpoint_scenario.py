"""A held lease with a checkpointer, to which records up to 9.4 were delivered."""

from __future__ import annotations

from random import Random

from kinesis_sdk.consumer.checkpointer import Checkpointer
from tests.consumer.leases.held_lease import Scenario as HeldScenario
from tests.consumer.leases.held_lease import at


class Scenario(HeldScenario):
    def __init__(self):
        super().__init__()
        self.checkpointer = Checkpointer(
            self.held, clock=self.clock, sleep=self.clock.advance, rng=Random(1), timeout=3.0
        )
        self.checkpointer.begin_at(at(5, 2))
        self.checkpointer.advance(at(9, 4))

    @property
    def row(self):
        return self.store.get("s")
