"""Answers of a recording: the history of one shard, and the course of a whole application."""

from __future__ import annotations

from dataclasses import dataclass

from kinesis_sdk.admin.fleet.model import LeaseState

GAP = 60.0
"""Seconds without a look after which the time between counts as not observed."""


@dataclass(frozen=True, kw_only=True)
class OwnerSpan:
    """A time in which one worker held a lease, or no worker did.

    Attributes:
        owner: The worker; None without one.
        state: State of the lease.
        start: Wall time in epoch seconds at which it was first seen.
        end: Wall time at which it was last seen.
    """

    owner: str | None
    state: LeaseState
    start: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A shard at one moment.

    Attributes:
        at: Wall time in epoch seconds.
        lag_millis: Milliseconds behind latest; None if that was not known.
        checkpoint: Stored sequence number; None if there was none.
    """

    at: float
    lag_millis: int | None
    checkpoint: str | None


@dataclass(frozen=True, kw_only=True)
class ShardHistory:
    """History of one shard, oldest first.

    Attributes:
        owners: Spans without overlap. A time between two of them was not observed.
        samples: At even distances within the times that were observed.
    """

    owners: tuple[OwnerSpan, ...] = ()
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Step:
    """An application within one step of its course.

    Attributes:
        at: Beginning of the step, in epoch seconds.
        worst_lag_millis: Largest lag that was seen in it; None if none was known.
        moves: Leases that changed their owner in it.
        problems: Problems that began in it and are errors.
    """

    at: float
    worst_lag_millis: int | None
    moves: int
    problems: int


@dataclass(frozen=True, kw_only=True)
class Course:
    """Course of an application over a time.

    Attributes:
        first: Wall time of the oldest look that is kept, in epoch seconds; None if there is none.
        last: Wall time of the newest one.
        start: Beginning of the time that was asked for.
        end: Its end.
        step: Seconds of each step.
        steps: The steps in which the application was looked at, oldest first. One that is missing was not observed.
    """

    first: float | None
    last: float | None
    start: float
    end: float
    step: float
    steps: tuple[Step, ...] = ()
