"""Picture of a stream on a terminal: hash key ranges, lineage and load, within 100 columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from kinesis_sdk.admin.fleet.formatting import counted
from kinesis_sdk.admin.lineage import Lineage, LineageShard, Origin, shard_label
from kinesis_sdk.admin.load import ShardLoad
from kinesis_sdk.admin.streams import StreamDescription
from kinesis_sdk.common.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 100
MAX_ROWS = 40
"""Maximum number of open shards that get a row each; a larger number is summarised."""
_RING = 32
_STRIP = 80
_LOAD_BAR = 10
_EVENTS = 10
_HOTTEST = 10
_BLOCKS = " ▁▂▃▄▅▆▇█"


def description_text(stream: StreamDescription) -> str:
    """Return the facts of a stream as aligned lines."""
    rows = [
        ("stream", stream.name),
        ("arn", stream.arn),
        ("status", f"{stream.status}, {stream.mode}, {counted(stream.open_shards, 'open shard')}"),
        ("retention", _hours(stream.retention_hours)),
        ("created", "" if stream.created_at is None else _moment(stream.created_at)),
        ("fan-out", counted(stream.consumers, "registered consumer")),
        ("encryption", stream.encryption),
    ]
    if stream.max_record_kib is not None:
        rows.append(("max record", f"{stream.max_record_kib:,} KiB"))
    if stream.tags:
        rows.append(
            ("tags", ", ".join(f"{printable(k)}={printable(v)}" for k, v in sorted(stream.tags.items())))
        )
    return "\n".join(f"{name:<11} {value}" for name, value in rows if value)


def picture(lineage: Lineage, loads: Mapping[str, ShardLoad] | None = None) -> RenderableType:
    """Return the picture: the open shards in the order of their ranges, and the latest splits and merges."""
    from rich.console import Group
    from rich.text import Text

    opened = lineage.open_shards
    parts: list[RenderableType] = []
    if len(opened) <= MAX_ROWS:
        parts.append(_rows(opened, loads))
    else:
        parts += [Text(line) for line in _summary(opened, loads)]
    if lineage.hole is not None:
        parts.append(
            Text(
                f"No open shard covers {lineage.hole.start} to {lineage.hole.end}: the stream is being resharded."
            )
        )
    events = _events(lineage)
    if events:
        parts += [
            Text(),
            Text(f"latest splits and merges ({counted(len(lineage.shards) - len(opened), 'closed shard')})"),
        ]
        parts += [Text(f"  {line}") for line in events]
    return Group(*parts)


def _rows(opened: tuple[LineageShard, ...], loads: Mapping[str, ShardLoad] | None) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("shard", justify="right", no_wrap=True)
    table.add_column("hash keys", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("gen", justify="right", no_wrap=True)
    table.add_column("from", no_wrap=True)
    if loads is not None:
        table.add_column("load", no_wrap=True)
        table.add_column("", no_wrap=True)
    for shard in opened:
        cells = [
            shard.label,
            ring_bar(shard),
            share_text(shard.width),
            str(shard.generation),
            origin_text(shard),
        ]
        if loads is not None:
            load = loads.get(shard.shard_id)
            cells += ["not read", ""] if load is None else [load_bar(load.utilization), load_text(load)]
        table.add_row(*cells)
    return table


def _summary(opened: tuple[LineageShard, ...], loads: Mapping[str, ShardLoad] | None) -> list[str]:
    """Return lines for many shards: their number in each part of the hash key space, their widths, and the busiest shards."""
    counts = [0.0] * _STRIP
    for shard in opened:
        counts[min(_STRIP - 1, int((shard.start + shard.width / 2) * _STRIP))] += 1
    widths = sorted(shard.width for shard in opened)
    middle = widths[len(widths) // 2]
    lines = [
        f"{len(opened):,} open shards; where they lie in the hash key space (tall: many narrow shards)",
        strip(counts),
        f"width: narrowest {share_text(widths[0])}, median {share_text(middle)}, widest {share_text(widths[-1])}",
    ]
    if loads:
        heat = [0.0] * _STRIP
        for shard in opened:
            load = loads.get(shard.shard_id)
            if load is not None:
                first = int(shard.start * _STRIP)
                last = min(_STRIP - 1, math.ceil((shard.start + shard.width) * _STRIP) - 1)
                for at in range(first, max(first, last) + 1):
                    heat[at] = max(heat[at], load.utilization)
        lines += ["load (tall: near the limits of a shard)", strip(heat, top=1.0), "most loaded shards"]
        hottest = sorted(loads.values(), key=lambda one: -one.utilization)[:_HOTTEST]
        lines += [
            f"  {shard_label(one.shard_id):>6}  {load_bar(one.utilization)}  {load_text(one)}"
            for one in hottest
        ]
    else:
        widest = sorted(opened, key=lambda one: -one.width)[:_HOTTEST]
        lines.append("widest shards")
        lines += [f"  {one.label:>6}  {ring_bar(one)}  {share_text(one.width)}" for one in widest]
    return lines


def _events(lineage: Lineage) -> list[str]:
    """Return the latest splits and merges, one per line, newest last."""
    by_id = {shard.shard_id: shard for shard in lineage.shards}
    seen: set[tuple[str, ...]] = set()
    events: list[tuple[datetime | None, str]] = []
    for shard in reversed(lineage.shards):
        if shard.origin is Origin.CREATED or shard.parents in seen or len(events) >= _EVENTS:
            continue
        seen.add(shard.parents)
        when = "" if shard.created_at is None else f"{_moment(shard.created_at)}  "
        parents = " + ".join(map(shard_label, shard.parents))
        if shard.origin is Origin.MERGE:
            events.append((shard.created_at, f"{when}merge  {parents} → {shard.label}"))
            continue
        parent = by_id.get(shard.parents[0])
        children = parent.children if parent is not None else (shard.shard_id,)
        split = [child for child in children if by_id[child].origin is Origin.SPLIT]
        events.append((shard.created_at, f"{when}split  {parents} → {', '.join(map(shard_label, split))}"))
    # Ids are in the order of creation, except within one scaling.
    events.reverse()
    if all(created is not None for created, _ in events):
        events.sort(key=lambda event: event[0] or datetime.min.replace(tzinfo=timezone.utc))
    return [line for _, line in events]


def ring_bar(shard: LineageShard) -> str:
    """Return the part of the hash key space that a shard covers, as a bar of fixed width."""
    first = min(_RING - 1, int(shard.start * _RING))
    last = max(first + 1, min(_RING, math.ceil((shard.start + shard.width) * _RING)))
    return "·" * first + "█" * (last - first) + "·" * (_RING - last)


def strip(values: list[float], top: float | None = None) -> str:
    """Return values as a row of blocks; the highest block is ``top``, or the largest value."""
    top = max(values, default=0.0) if top is None else top
    if top <= 0:
        return " " * len(values)
    # A value above zero is always visible.
    return "".join(_BLOCKS[0 if value <= 0 else max(1, min(8, round(value / top * 8)))] for value in values)


def load_bar(utilization: float) -> str:
    """Return the used part of a shard's limits, as a bar of fixed width."""
    filled = min(_LOAD_BAR, round(utilization * _LOAD_BAR))
    return "▇" * filled + "·" * (_LOAD_BAR - filled)


def load_text(load: ShardLoad) -> str:
    """Return a load in numbers."""
    return f"{load.utilization:4.0%} {load.records_per_second:,.0f}/s {bytes_text(load.bytes_per_second)}/s"


def bytes_text(size: float) -> str:
    """Return a number of bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:,.0f} {unit}" if unit == "B" or size >= 100 else f"{size:,.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit takes all")


def share_text(width: float) -> str:
    """Return a part of the hash key space in per cent."""
    percent = width * 100
    return f"{percent:.1f}%" if percent >= 1 else f"{percent:.2g}%"


def origin_text(shard: LineageShard) -> str:
    """Return the origin of a shard."""
    names = " + ".join(map(shard_label, shard.parents))
    return {Origin.CREATED: "", Origin.SPLIT: f"split of {names}", Origin.MERGE: f"merge of {names}"}[
        shard.origin
    ]


def _hours(hours: int) -> str:
    days = f" ({hours / 24:g} days)" if hours % 24 == 0 and hours > 24 else ""
    return f"{hours:,} h{days}"


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
