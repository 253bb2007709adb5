"""Progress of a running query: a line per batch, and a data frame for plots.

Spark does not transfer metrics of Python sources. Two things are available: the cut in the end offset (all versions), and
the planner's report (``sources[].latestOffset``, 4.2 and later).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.position import Ended
from kinesis_sdk.spark.errors import OffsetError
from kinesis_sdk.spark.offsets import QueryOffset

if TYPE_CHECKING:
    import pandas as pd


def describe_progress(progress: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the numbers of one progress report; None if the query does not read from this source.

    Args:
        progress: An element of ``query.recentProgress``, or ``event.progress.json`` parsed.

    Returns:
        ``batchId``, ``timestamp`` (text), ``rows``, ``rowsPerSecond``, ``batchMs``, ``planMs``, and over all sources of this kind:

        * ``maxLagMs``: lag of the source that is furthest behind. With a report of the planner (Spark 4.2 and later), it is 0 if no limit
        ended the batch; otherwise it is the age of the batch's cut at ``timestamp``. None if unknown.
        * ``limitedBy``: limit that ended the batch of that source early: ``span``, or the name of an option such as ``maxBatchSpan``; None
        if no limit did, and without a report.
        * ``fallingBehind``: whether batches take longer than the stream time that they contain; None without a report.
        * ``shards`` and ``ended``: numbers of shards that are being read, and of shards that were read to their end.
    """
    moment = str(progress.get("timestamp", ""))
    offsets: list[QueryOffset] = []
    lags: list[tuple[int, str | None]] = []
    falling: list[bool] = []
    for source in progress.get("sources", ()):
        try:
            offset = QueryOffset.from_dict(_loaded(source.get("endOffset")))
        except OffsetError:
            continue
        offsets.append(offset)
        report = _report(_loaded(source.get("latestOffset")))
        lag, limit = report.get("maxBehindMs"), report.get("limitedBy")
        if lag is None:
            lag = _age(offset.cut, moment)
        if lag is not None:
            lags.append((int(lag), None if limit is None else str(limit)))
        if report.get("fallingBehind") is not None:
            falling.append(bool(report["fallingBehind"]))
    if not offsets:
        return None
    furthest = max(lags, key=lambda item: item[0], default=(None, None))
    positions = [
        position
        for offset in offsets
        for stream in offset.streams.values()
        for position in stream.shards.values()
    ]
    ended = sum(isinstance(position, Ended) for position in positions)
    durations = progress.get("durationMs") or {}
    return {
        "batchId": int(progress.get("batchId", -1)),
        "timestamp": moment,
        "rows": int(progress.get("numInputRows") or 0),
        "rowsPerSecond": float(progress.get("processedRowsPerSecond") or 0.0),
        "batchMs": int(durations.get("triggerExecution", 0)),
        "planMs": int(durations.get("latestOffset", 0)),
        "maxLagMs": furthest[0],
        "limitedBy": furthest[1],
        "fallingBehind": any(falling) if falling else None,
        "shards": len(positions) - ended,
        "ended": ended,
    }


def _loaded(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return None
    return value


def _report(value: Any) -> Mapping[str, Any]:
    """Return the planner's report, or an empty mapping before Spark 4.2, where the value repeats the end offset."""
    return value if isinstance(value, Mapping) and "maxBehindMs" in value else {}


def _age(cut: int | None, moment: str) -> int | None:
    """Return the milliseconds from a cut to a time in ISO 8601; None if either is missing."""
    if cut is None or not moment:
        return None
    try:
        # Python 3.10 does not accept the letter Z.
        now = datetime.fromisoformat(moment[:-1] + "+00:00" if moment.endswith("Z") else moment)
    except ValueError:
        return None
    if now.tzinfo is None:
        now = now.replace(tzinfo=timezone.utc)
    return max(0, round(now.timestamp() * 1000) - cut)


def format_progress(name: str, numbers: Mapping[str, Any]) -> str:
    """Return the numbers as one readable line."""
    lag, limit = numbers["maxLagMs"], numbers["limitedBy"]
    return (
        f"{name} batch {numbers['batchId']}: {numbers['rows']:,} rows, {numbers['rowsPerSecond']:,.0f} rows/s, "
        f"{numbers['batchMs'] / 1000:.2f} s (planning {numbers['planMs'] / 1000:.2f} s), "
        f"lag {'unknown' if lag is None else f'{lag / 1000:.1f} s'}, {numbers['shards']} shards, "
        f"{numbers['ended']} ended{f', limited by {limit}' if limit else ''}"
        f"{', falling behind' if numbers['fallingBehind'] else ''}"
    )


def progress_frame(query: Any) -> pd.DataFrame:
    """Return the recent progress of a query as a pandas data frame with a row per batch.

    Spark keeps 100 reports (``spark.sql.streaming.numRecentProgressUpdates``). The columns are described in `describe_progress`, except
    that ``timestamp`` is a UTC timestamp; batches without this source's offsets are left out.
    """
    import pandas as pd

    rows = [describe_progress(_as_mapping(item)) for item in query.recentProgress]
    columns = [
        "batchId",
        "timestamp",
        "rows",
        "rowsPerSecond",
        "batchMs",
        "planMs",
        "maxLagMs",
        "limitedBy",
        "fallingBehind",
        "shards",
        "ended",
    ]
    frame = pd.DataFrame([row for row in rows if row is not None], columns=columns)
    frame["timestamp"] = pd.to_datetime(frame["timestamp"], utc=True)
    return frame


def _as_mapping(item: Any) -> Mapping[str, Any]:
    """Return a progress report as a mapping. Some versions of Spark use a mapping, others an object with ``json``."""
    if isinstance(item, Mapping) and not hasattr(item, "json"):
        return item
    loaded = json.loads(item.json)
    assert isinstance(loaded, dict)
    return loaded


def progress_listener(write: Callable[[str], object] | None = None) -> Any:
    """Return a listener that writes one line per batch with rows.

        spark.streams.addListener(progress_listener())

    Args:
        write: Called with each line; None writes to standard error.

    Returns:
        A ``StreamingQueryListener``.
    """
    from pyspark.sql.streaming import StreamingQueryListener

    def to_stderr(line: str) -> None:
        sys.stderr.write(line + "\n")

    out = write or to_stderr

    class ProgressListener(StreamingQueryListener):  # type: ignore[misc]
        """Listener that writes a line per batch."""

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 — Spark's name
            """Called when a query starts."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802 — Spark's name
            """Called when a batch is finished."""
            numbers = describe_progress(json.loads(event.progress.json))
            if numbers is not None and numbers["rows"]:
                out(format_progress(event.progress.name or str(event.progress.id)[:8], numbers))

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802 — Spark's name
            """Called when a trigger found no records to process."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 — Spark's name
            """Called when a query ended."""

    return ProgressListener()
