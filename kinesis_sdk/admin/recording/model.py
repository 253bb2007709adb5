"""Results of a recording: the history of one shard, and the course of a whole application."""

from __future__ import annotations

from dataclasses import dataclass

from kinesis_sdk.admin.fleet.model import LeaseState

GAP = 60.0
"""Seconds without a view after which the time counts as not observed."""


@dataclass(frozen=True, kw_only=True)
class OwnerSpan:
    """A period in which one worker, or none, held a lease, from its first to its last observation in epoch seconds."""

    owner: str | None
    state: LeaseState
    start: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A shard at a given time.

    Attributes:
        lag_millis: Milliseconds behind latest; None if unknown.
        checkpoint: Stored sequence number; None if there was none.
    """

    at: float
    lag_millis: int | None
    checkpoint: str | None


@dataclass(frozen=True, kw_only=True)
class ShardHistory:
    """History of one shard, oldest first.

    Attributes:
        owners: Spans without overlap. The time between two entries was not observed.
        samples: Samples that are evenly spaced within the observed times.
    """

    owners: tuple[OwnerSpan, ...] = ()
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Step:
    """An application within one step of its course.

    Attributes:
        worst_lag_millis: Largest known lag in the step; None if no lag was known.
        problems: Errors that began in the step.
    """

    at: float
    worst_lag_millis: int | None
    moves: int
    problems: int


@dataclass(frozen=True, kw_only=True)
class Course:
    """Course of an application over a period.

    Attributes:
        first: Wall time of the oldest stored view, in epoch seconds; None if there is none.
        last: Wall time of the newest view.
        start: Beginning of the requested period.
        end: Its end.
        step: Seconds of each step.
        steps: The steps in which the application was observed, oldest first.
    """

    first: float | None
    last: float | None
    start: float
    end: float
    step: float
    steps: tuple[Step, ...] = ()
