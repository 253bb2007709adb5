"""Exponential backoff with jitter: the only formula for pauses between failed attempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_sdk.common.validation import check_seconds

if TYPE_CHECKING:
    from random import Random

_MAX_DOUBLINGS = 30
"""Doublings after which every cap is reached; a larger exponent would overflow a float."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between consecutive failed attempts: each is up to twice as long as the pause before it, with jitter.

    Attributes:
        first: Longest pause in seconds after the first failure, 0.001 to 86,400.
        longest: Longest pause in seconds after any number of failures, ``first`` to 86,400.

    Raises:
        ConfigError: If a value is outside its range.
    """

    first: float
    longest: float

    def __post_init__(self) -> None:
        check_seconds("Backoff.first", self.first, 0.001, 86_400)
        check_seconds("Backoff.longest", self.longest, self.first, 86_400)

    def pause(self, failures: int, rng: Random) -> float:
        """Return the seconds to wait before the next attempt. Draws one number from ``rng``.

        The upper half of a pause is random. So clients that failed together do not retry together, and no retry is immediate.

        Args:
            failures: Consecutive failures so far, at least 1.
            rng: Source of jitter.

        Returns:
            Seconds, from half of ``min(longest, first * 2 ** (failures - 1))`` up to this whole value.
        """
        longest = min(self.longest, self.first * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
        return longest * (0.5 + rng.random() / 2)
