from __future__ import annotations

import pytest

from kinesis_sdk.testing import VirtualClock


def test_both_readings_move_together_and_only_when_told() -> None:
    clock = VirtualClock(1.5e9, start_monotonic=7)
    assert (clock.time(), clock.monotonic()) == (1.5e9, 7)
    clock.advance(2.5)
    assert (clock.time(), clock.monotonic()) == (1.5e9 + 2.5, 9.5)


def test_advance_to_never_goes_back() -> None:
    clock = VirtualClock()
    clock.advance_to(10)
    clock.advance_to(3)
    assert clock.monotonic() == 10


@pytest.mark.parametrize("start", [0, 1e9 - 1, 1e10])
def test_start_outside_the_ten_digit_years_is_refused(start: float) -> None:
    with pytest.raises(ValueError, match="epoch seconds"):
        VirtualClock(start)


def test_going_back_is_refused() -> None:
    with pytest.raises(ValueError, match="never goes back"):
        VirtualClock().advance(-1)
