"""Resharding of streams: splits, merges, scaling to equal shards. A retry first checks whether the change took effect."""

from __future__ import annotations

from dataclasses import dataclass

from kinesis_sdk.admin.fleet.formatting import counted
from kinesis_sdk.admin.lineage import find_shard, shard_label
from kinesis_sdk.admin.scaling import (
    MAX_UPDATES,
    MergeAt,
    ScaleMethod,
    ScalePlan,
    SplitAt,
    UpdateCount,
    plan_scaling,
)
from kinesis_sdk.admin.streams import Progress, Streams, no_progress
from kinesis_sdk.common.errors import AdminError, AwsError, ConfigError
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_int

_UPDATE_IMPOSSIBLE = frozenset(
    {
        "LimitExceededException",
        "UnknownOperationException",
        "AccessDeniedException",
        "AccessDenied",
        "InternalFailure",
    }
)
"""Error codes after which splits and merges replace UpdateShardCount: its quota, missing permissions, an emulator without this call."""


@dataclass(frozen=True, kw_only=True)
class ScaleResult:
    """Result of a scaling.

    Attributes:
        before: Open shards before it.
        after: Open shards after it.
        splits: SplitShard calls.
        merges: MergeShards calls.
        updates: UpdateShardCount calls.
        seconds: Duration.
    """

    before: int
    after: int
    splits: int
    merges: int
    updates: int
    seconds: float


class Resharding:
    """Changes to the shards of streams. Each change waits until the stream is ACTIVE, both before and after the change. Thread-safe.

    Args:
        streams: The streams of the account and region.
        timeout: Maximum seconds to wait, before and after each step.
        progress: Called before each step of a scaling, and while a step takes a long time.
    """

    def __init__(self, streams: Streams, *, timeout: float = 600.0, progress: Progress = no_progress) -> None:
        self._streams = streams
        self._timeout = timeout
        self._progress = progress

    def plan_scale(self, stream: str | StreamId, target: int, *, method: ScaleMethod = "auto") -> ScalePlan:
        """Return the calls that `scale` would make now, without making them.

        Raises:
            ConfigError: If an argument is out of range, or the forced method cannot lead to the target.
            AwsError: If a call fails.
        """
        return plan_scaling(_starts(self._streams.shards(stream, only_open=True)), target, method=method)

    def split(self, stream: str | StreamId, shard: str, *, hash_key: int | None = None) -> tuple[str, ...]:
        """Split an open shard in two, and wait until the stream is ACTIVE again.

        Args:
            stream: Name or ARN.
            shard: Shard id or its number.
            hash_key: First hash key of the right child; each child gets at least two hash keys. None for the middle.

        Returns:
            Ids of the two children.

        Raises:
            ConfigError: If there is no such shard, it is closed, or the hash key is not inside its range.
            AdminError: If the stream is on demand, or not ACTIVE in time.
            AwsError: If a call fails.
        """
        stream = StreamId.parse(stream)
        self._ready_to_reshard(stream)
        found = _open_shard("shard", shard, self._streams.shards(stream))
        owned = found.hash_key_range
        if hash_key is None:
            if owned.end - owned.start < 3:
                raise ConfigError("shard", shard, "a shard with at least four hash keys")
            hash_key = owned.start + (owned.end - owned.start + 1) // 2
        check_int("hash_key", hash_key, owned.start + 2, owned.end - 1)
        return self._split(stream, found, hash_key)

    def merge(self, stream: str | StreamId, shard: str, adjacent: str) -> str:
        """Merge two open shards whose ranges touch, and wait until the stream is ACTIVE again.

        Args:
            stream: Name or ARN.
            shard: Shard id or its number.
            adjacent: Shard id or number of the other shard.

        Returns:
            Id of the child.

        Raises:
            ConfigError: If a shard does not exist or is closed, or the ranges do not touch; the message names the neighbours.
            AdminError: If the stream is on demand, or not ACTIVE in time.
            AwsError: If a call fails.
        """
        stream = StreamId.parse(stream)
        self._ready_to_reshard(stream)
        listed = self._streams.shards(stream)
        first = _open_shard("shard", shard, listed)
        second = _open_shard("adjacent", adjacent, listed)
        if first.hash_key_range.end + 1 != second.hash_key_range.start:
            if second.hash_key_range.end + 1 != first.hash_key_range.start:
                raise ConfigError("adjacent", adjacent, _neighbours(first, listed))
            first, second = second, first
        return self._merge(stream, first, second)

    def scale(self, stream: str | StreamId, target: int, *, method: ScaleMethod = "auto") -> ScaleResult:
        """Bring a provisioned stream to ``target`` equal shards, step by step.

        Each step is decided from the shards that are open at that time, so another call continues an interrupted scaling, and a concurrent
        reshard by another program is detected. If Kinesis rejects UpdateShardCount (ten calls in 24 hours,
        permissions), ``auto`` continues with splits and merges.

        Args:
            stream: Name or ARN.
            target: Number of shards, 1 to 100,000.
            method: ``auto`` chooses the method with fewer calls; ``update-shard-count`` and ``split-merge`` force one.

        Raises:
            ConfigError: If an argument is out of range, or the forced method cannot lead to the target.
            AdminError: If the stream is on demand, a step is not finished in time, or the shards do not become equal.
            AwsError: If a call fails.
        """
        stream = StreamId.parse(stream)
        begin = self._streams.clock.monotonic()
        self._ready_to_reshard(stream)
        listed = self._streams.shards(stream, only_open=True)
        before = len(listed)
        made = {SplitAt: 0, MergeAt: 0, UpdateCount: 0}
        updates_left = MAX_UPDATES
        plan = plan_scaling(_starts(listed), target, method=method)
        # Each split or merge brings the stream one step nearer to the target. If more steps are needed, another program
        # reshards the stream, too.
        most_steps = 2 * (before + target) + MAX_UPDATES
        while plan.steps:
            if sum(made.values()) >= most_steps:
                raise AdminError(
                    f"stream {stream.name} has {len(listed)} shards after {sum(made.values())} steps, and they are still "
                    f"not {target} equal ones: something else changes its shards as well"
                )
            step = plan.steps[0]
            self._progress(
                f"{len(listed)} shards, {counted(len(plan.steps), 'step')} left: {_step_text(step, listed)}"
            )
            if isinstance(step, UpdateCount):
                updates_left -= 1
                try:
                    self._update_count(stream, step.target, len(listed))
                except AwsError as error:
                    if method != "auto" or error.code not in _UPDATE_IMPOSSIBLE:
                        raise
                    self._progress(
                        f"UpdateShardCount is not possible ({error.code}); going on with splits and merges"
                    )
                    updates_left = 0
            elif isinstance(step, SplitAt):
                self._split(stream, _shard_at(listed, step.hash_key), step.hash_key)
            else:
                left, right = _shard_at(listed, step.hash_key - 1), _shard_at(listed, step.hash_key)
                self._merge(stream, left, right)
            made[type(step)] += 1
            listed = self._streams.shards(stream, only_open=True)
            plan = plan_scaling(_starts(listed), target, method=method, updates_left=updates_left)
        return ScaleResult(
            before=before,
            after=len(listed),
            splits=made[SplitAt],
            merges=made[MergeAt],
            updates=made[UpdateCount],
            seconds=self._streams.clock.monotonic() - begin,
        )

    def _ready_to_reshard(self, stream: StreamId) -> None:
        found = self._streams.wait_until_active(stream, timeout=self._timeout, progress=self._progress)
        if found.mode == "ON_DEMAND":
            raise AdminError(
                f"stream {found.name} is ON_DEMAND: Kinesis changes its shards by itself, and rejects splits, merges and "
                "UpdateShardCount"
            )

    def _split(self, stream: StreamId, shard: Shard, hash_key: int) -> tuple[str, ...]:
        def children() -> tuple[str, ...]:
            return tuple(
                one.shard_id for one in self._streams.shards(stream) if shard.shard_id in one.parents
            )

        self._streams.calls.change(
            "SplitShard",
            "split_shard",
            {**stream.request, "ShardToSplit": shard.shard_id, "NewStartingHashKey": str(hash_key)},
            applied=lambda: bool(children()) or self._streams.describe(stream).status == "UPDATING",
            in_use=lambda: self._settle(stream),
        )
        self._settle(stream)
        made = children()
        if len(made) != 2:
            raise AdminError(f"shard {shard.shard_id} was not split: it has {len(made)} children")
        return made

    def _merge(self, stream: StreamId, first: Shard, second: Shard) -> str:
        def child() -> str | None:
            both = {first.shard_id, second.shard_id}
            return next(
                (one.shard_id for one in self._streams.shards(stream) if set(one.parents) == both), None
            )

        self._streams.calls.change(
            "MergeShards",
            "merge_shards",
            {
                **stream.request,
                "ShardToMerge": first.shard_id,
                "AdjacentShardToMerge": second.shard_id,
            },
            applied=lambda: child() is not None or self._streams.describe(stream).status == "UPDATING",
            in_use=lambda: self._settle(stream),
        )
        self._settle(stream)
        made = child()
        if made is None:
            raise AdminError(f"shards {first.shard_id} and {second.shard_id} were not merged")
        return made

    def _update_count(self, stream: StreamId, target: int, before: int) -> None:
        def applied() -> bool:
            found = self._streams.describe(stream)
            return found.status == "UPDATING" or found.open_shards != before

        self._streams.calls.change(
            "UpdateShardCount",
            "update_shard_count",
            {**stream.request, "TargetShardCount": target, "ScalingType": "UNIFORM_SCALING"},
            applied=applied,
            in_use=lambda: self._settle(stream),
        )
        self._settle(stream)

    def _settle(self, stream: StreamId) -> None:
        self._streams.wait_until_active(stream, timeout=self._timeout, progress=self._progress)


def _starts(shards: list[Shard]) -> list[int]:
    return sorted(one.hash_key_range.start for one in shards if one.is_open)


def _shard_at(shards: list[Shard], hash_key: int) -> Shard:
    return next(one for one in shards if one.is_open and hash_key in one.hash_key_range)


def _open_shard(field: str, text: str, shards: list[Shard]) -> Shard:
    found = find_shard(text, shards)
    if not found.is_open:
        children = [shard_label(one.shard_id) for one in shards if found.shard_id in one.parents]
        raise ConfigError(
            field,
            text,
            f"an open shard; this one is closed, its children are {', '.join(children) or 'gone'}",
        )
    return found


def _neighbours(shard: Shard, shards: list[Shard]) -> str:
    owned = shard.hash_key_range
    beside = [
        shard_label(one.shard_id)
        for one in shards
        if one.is_open
        and (one.hash_key_range.end + 1 == owned.start or owned.end + 1 == one.hash_key_range.start)
    ]
    who = " or ".join(beside)
    return (
        f"a shard whose range touches that of {shard_label(shard.shard_id)}: {who}"
        if beside
        else f"nothing: {shard_label(shard.shard_id)} is the only open shard"
    )


def _step_text(step: SplitAt | MergeAt | UpdateCount, shards: list[Shard]) -> str:
    if isinstance(step, UpdateCount):
        return f"UpdateShardCount to {step.target}"
    if isinstance(step, SplitAt):
        return f"split {shard_label(_shard_at(shards, step.hash_key).shard_id)} at {step.hash_key}"
    left, right = _shard_at(shards, step.hash_key - 1), _shard_at(shards, step.hash_key)
    return f"merge {shard_label(left.shard_id)} and {shard_label(right.shard_id)}"
