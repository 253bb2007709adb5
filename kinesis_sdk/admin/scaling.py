"""Plan of a scaling: the calls that bring a stream to N equal shards, decided from the shards that are open now.

Every decision starts from the current layout, so a new decision continues an interrupted scaling.

Kinesis offers two ways. UpdateShardCount changes all shards with one call, but at most to twice or half of the current number, ten times
in 24 hours, and up to 10,000 shards. SplitShard and MergeShards change one or two shards at a time, without a quota.
Each call leaves the stream UPDATING for about half a minute, during which Kinesis rejects further calls.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kinesis_sdk.admin.fleet.formatting import counted
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY
from kinesis_sdk.common.validation import check_int

MAX_UPDATES = 10
"""UpdateShardCount calls that a stream accepts in 24 hours (API reference)."""
MAX_UPDATED_SHARDS = 10_000
"""Maximum shards that UpdateShardCount accepts as target (API reference)."""
MAX_SHARDS = 100_000
"""Maximum target accepted here, to catch typing errors. The account's own limit is lower."""

_SPACE = MAX_HASH_KEY + 1
_TOLERANCE = 1000
"""A boundary whose error is less than this part of a shard's width stays, because halving has an error of one hash key."""

ScaleMethod = Literal["auto", "update-shard-count", "split-merge"]
METHODS: tuple[str, ...] = ("auto", "update-shard-count", "split-merge")


@dataclass(frozen=True)
class SplitAt:
    """SplitShard of the shard that holds ``hash_key``, the first hash key of the new right shard."""

    hash_key: int


@dataclass(frozen=True)
class MergeAt:
    """MergeShards of the two shards that meet at ``hash_key``, the first hash key of the right shard."""

    hash_key: int


@dataclass(frozen=True)
class UpdateCount:
    """UpdateShardCount."""

    target: int


ScaleStep = SplitAt | MergeAt | UpdateCount


@dataclass(frozen=True, kw_only=True)
class ScalePlan:
    """The calls that lead to the target.

    Attributes:
        target: Number of shards at the end.
        steps: The calls in order; none if the stream has that layout.
        peak: Maximum number of open shards during the scaling, which counts against the account's limit. UpdateShardCount may need
            more than its steps show.
        reason: Reason for the chosen method.
    """

    target: int
    steps: tuple[ScaleStep, ...]
    peak: int
    reason: str


def uniform_starts(count: int) -> list[int]:
    """Return the first hash keys of ``count`` equal shards, as Kinesis lays them out; the last shard gets the rest."""
    width = _SPACE // count
    return [index * width for index in range(count)]


def is_even(starts: Sequence[int], target: int) -> bool:
    """Return whether open shards with these first hash keys are ``target`` equal shards."""
    return not _split_merge_steps(starts, target)


def plan_scaling(
    starts: Sequence[int], target: int, *, method: ScaleMethod = "auto", updates_left: int = MAX_UPDATES
) -> ScalePlan:
    """Return the calls that bring a stream, whose open shards have these first hash keys, to equal shards.

    ``auto`` chooses the method with fewer calls; the other values force a method. ``updates_left`` is the number of
    UpdateShardCount calls that may be made; 0 if Kinesis rejected such a call.

    Raises:
        ConfigError: If ``target`` or ``method`` is out of range, or the forced way cannot lead to the target.
    """
    check_int("target", target, 1, MAX_SHARDS)
    if method not in METHODS:
        raise ConfigError("method", method, f"one of {', '.join(METHODS)}")
    current = len(starts)
    single = _split_merge_steps(starts, target)
    if not single:
        return ScalePlan(target=target, steps=(), peak=current, reason=f"{target} equal shards already")
    updates = _update_steps(current, target)
    problem = None
    if target == current:
        problem = "UpdateShardCount changes the number of shards, and only their ranges differ"
    elif max(updates) > MAX_UPDATED_SHARDS:
        problem = f"UpdateShardCount accepts at most {MAX_UPDATED_SHARDS:,} shards"
    elif len(updates) > updates_left:
        problem = (
            f"UpdateShardCount would have to be called {len(updates)} times, and {updates_left} more "
            f"{'is' if updates_left == 1 else 'are'} possible (Kinesis allows {MAX_UPDATES} in 24 hours)"
        )
    if method == "update-shard-count" and problem is not None:
        raise ConfigError("method", method, f"split-merge for this change: {problem}")
    if method == "update-shard-count" or (
        method == "auto" and problem is None and len(updates) < len(single)
    ):
        reason = f"UpdateShardCount needs {counted(len(updates), 'call')}, splits and merges need {counted(len(single), 'call')}"
        return ScalePlan(
            target=target,
            steps=tuple(UpdateCount(step) for step in updates),
            peak=max(current, target),
            reason=reason,
        )
    reason = (
        problem or f"splits and merges need {counted(len(single), 'call')} and count against no daily limit"
    )
    return ScalePlan(target=target, steps=tuple(single), peak=_peak(current, single), reason=reason)


def _peak(current: int, steps: Sequence[ScaleStep]) -> int:
    peak = current
    for step in steps:
        current += 1 if isinstance(step, SplitAt) else -1
        peak = max(peak, current)
    return peak


def _update_steps(current: int, target: int) -> list[int]:
    """Return the targets of UpdateShardCount calls, each between half and twice the previous target.

    The targets are computed back from the last target, so that the last calls divide shards evenly instead of moving boundaries.
    """
    steps = [target]
    if target > current:
        while steps[0] > 2 * current:
            steps.insert(0, -(-steps[0] // 2))
    else:
        while 2 * steps[0] < current:
            steps.insert(0, 2 * steps[0])
    return steps


def _split_merge_steps(starts: Sequence[int], target: int) -> list[ScaleStep]:
    """Return the fewest splits and merges that lead to equal shards: one for each missing or surplus boundary.

    The steps go from left to right. A range is split before its parts are merged with other ranges. So no intermediate shard covers more
    than the larger of the old and the new shards around it, and no part of the hash key space loses capacity.
    """
    present = sorted(set(starts) - {0})
    slack = _SPACE // target // _TOLERANCE
    steps: list[ScaleStep] = []
    index = 0
    missing: list[int] = []
    surplus: list[int] = []
    for boundary in [*uniform_starts(target)[1:], _SPACE]:
        while index < len(present) and present[index] < boundary - slack:
            surplus.append(present[index])
            index += 1
        near = present[index : bisect_right(present, boundary + slack)]
        index += len(near)
        if boundary < _SPACE and not near:
            missing.append(boundary)
            if not surplus:
                continue
        # The boundary exists already, perhaps off by a few hash keys. Any other boundary that is as near is surplus.
        kept = min(near, key=lambda key: abs(key - boundary)) if near and boundary < _SPACE else None
        steps.extend(SplitAt(key) for key in _halving(missing))
        steps.extend(MergeAt(key) for key in _pairing(surplus))
        missing = []
        surplus = [key for key in near if key != kept]
    steps.extend(MergeAt(key) for key in _pairing(surplus))
    return steps


def _halving(keys: list[int]) -> list[int]:
    """Return the middle key first, then the middle keys of both halves, and so on: the new shards are few generations deep."""
    ordered: list[int] = []
    layer = [keys]
    while layer:
        following: list[list[int]] = []
        for part in layer:
            if part:
                middle = len(part) // 2
                ordered.append(part[middle])
                following += [part[:middle], part[middle + 1 :]]
        layer = following
    return ordered


def _pairing(keys: list[int]) -> list[int]:
    """Return every second key first, then every second remaining key, and so on: shards are merged in pairs, then pairs of pairs."""
    ordered: list[int] = []
    while keys:
        ordered += keys[0::2]
        keys = keys[1::2]
    return ordered
