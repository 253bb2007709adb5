from __future__ import annotations

from random import Random

from kinesis_sdk.common.backoff import Backoff

PAUSES = Backoff(0.5, 30.0)


class Draws(Random):
    """Random numbers that the test chooses."""

    def __init__(self, *numbers: float) -> None:
        super().__init__()
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)


def test_the_delay_doubles_up_to_the_maximum():
    delays = [PAUSES.pause(failures, Draws(1.0)) for failures in range(1, 9)]
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_the_upper_half_of_the_delay_is_random():
    assert PAUSES.pause(3, Draws(0.0)) == 1.0
    assert PAUSES.pause(3, Draws(0.5)) == 1.5


def test_the_delay_stays_within_its_bounds_after_any_number_of_failures():
    rng = Random(1)
    for failures in range(1, 2000, 7):
        longest = min(30.0, 0.5 * 2 ** min(failures - 1, 100))
        assert longest / 2 <= PAUSES.pause(failures, rng) <= longest


def test_one_delay_draws_one_random_number():
    draws = Draws(0.25, 0.75)
    PAUSES.pause(2, draws)
    assert draws.numbers == [0.75]
