"""History of each shard since a process began to watch: owners, lag and checkpoints over time. Bounded, and without calls."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kinesis_sdk.admin.fleet.model import FleetView, LeaseState

HISTORY_STEP = 10.0
"""Seconds between two samples of a shard."""
HISTORY_LENGTH = 2160
"""Largest number of samples of a shard: six hours, about 60 kB."""
_SPANS = 500
"""Largest number of owners of a shard that are kept."""
_GAP = 6 * HISTORY_STEP
"""Seconds without a view after which the time between counts as not observed."""


@dataclass(frozen=True, kw_only=True)
class OwnerSpan:
    """A time in which one worker held a lease, or no worker did.

    Attributes:
        owner: The worker; None without one.
        state: State of the lease at the end of the span.
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
        samples: One each `HISTORY_STEP` seconds.
    """

    owners: tuple[OwnerSpan, ...] = ()
    samples: tuple[Sample, ...] = ()


class FleetHistory:
    """Keeps the history of each lease of one application. Not thread-safe.

    Args:
        length: Largest number of samples of a shard.
    """

    def __init__(self, *, length: int = HISTORY_LENGTH) -> None:
        self._length = length
        self._owners: dict[str, deque[OwnerSpan]] = {}
        self._samples: dict[str, deque[Sample]] = {}

    def add(self, view: FleetView) -> None:
        """Add what a view shows. Leases that it does not show are forgotten."""
        if view.error:
            return  # the view repeats what was seen before
        for lease in view.leases:
            spans = self._owners.setdefault(lease.lease_key, deque(maxlen=_SPANS))
            last = spans[-1] if spans else None
            observed = last is not None and view.at - last.end <= _GAP
            if last is not None and observed and last.owner == lease.owner and last.state == lease.state:
                spans[-1] = OwnerSpan(owner=last.owner, state=last.state, start=last.start, end=view.at)
            else:
                start = last.end if last is not None and observed else view.at
                spans.append(OwnerSpan(owner=lease.owner, state=lease.state, start=start, end=view.at))
            samples = self._samples.setdefault(lease.lease_key, deque(maxlen=self._length))
            if not samples or view.at - samples[-1].at >= HISTORY_STEP:
                samples.append(
                    Sample(
                        at=view.at,
                        lag_millis=lease.lag.millis if lease.lag is not None else None,
                        checkpoint=lease.checkpoint.sequence_number if lease.checkpoint is not None else None,
                    )
                )
        keys = {lease.lease_key for lease in view.leases}
        for known in (self._owners, self._samples):
            for gone in known.keys() - keys:
                del known[gone]

    def of(self, lease_key: str) -> ShardHistory:
        """Return what was seen of a lease; empty if nothing was."""
        return ShardHistory(
            owners=tuple(self._owners.get(lease_key, ())), samples=tuple(self._samples.get(lease_key, ()))
        )
