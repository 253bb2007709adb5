"""Progress of a running query: a line per batch, and a data frame for plots.

Spark does not transport metrics of Python sources. Available are the arrival times in the end offset (all versions), and the lag
that the planner saw (``sources[].latestOffset``, 4.2 and later).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.position import AfterSequence, Ended
from kinesis_sdk.spark.errors import OffsetError
from kinesis_sdk.spark.offsets import StreamOffset

if TYPE_CHECKING:
    import pandas as pd


def describe_progress(progress: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the numbers of one progress report; None if the query does not read from this source.

    Args:
        progress: An element of ``query.recentProgress``, or ``event.progress.json`` parsed.

    Returns:
        ``batchId``, ``timestamp`` (text), ``rows``, ``rowsPerSecond``, ``batchMs``, ``planMs``, ``maxLagMs`` (from
        the planner; otherwise the age of the newest record of the shard that is furthest behind; None if unknown), ``shards``
        and ``ended``, over all sources of this kind.
    """
    offsets: list[StreamOffset] = []
    reported: list[int] = []
    for source in progress.get("sources", ()):
        end, latest = _loaded(source.get("endOffset")), _loaded(source.get("latestOffset"))
        try:
            offsets.append(StreamOffset.from_dict(end))
        except OffsetError:
            continue
        if isinstance(latest, Mapping) and latest.get("maxBehindMs") is not None:
            reported.append(int(latest["maxBehindMs"]))
    if not offsets:
        return None
    positions = [position for offset in offsets for position in offset.shards.values()]
    durations = progress.get("durationMs") or {}
    moment = str(progress.get("timestamp", ""))
    return {
        "batchId": int(progress.get("batchId", -1)),
        "timestamp": moment,
        "rows": int(progress.get("numInputRows") or 0),
        "rowsPerSecond": float(progress.get("processedRowsPerSecond") or 0.0),
        "batchMs": int(durations.get("triggerExecution", 0)),
        "planMs": int(durations.get("latestOffset", 0)),
        "maxLagMs": max(reported) if reported else _age(positions, moment),
        "shards": sum(not isinstance(position, Ended) for position in positions),
        "ended": sum(isinstance(position, Ended) for position in positions),
    }


def _loaded(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return None
    return value


def _age(positions: list[Any], moment: str) -> int | None:
    """Return the milliseconds from the position of the shard that is furthest behind to a time; None if unknown."""
    known = [position.known for position in positions if isinstance(position, AfterSequence)]
    if not known or not moment:
        return None
    now = datetime.fromisoformat(moment[:-1] + "+00:00" if moment.endswith("Z") else moment)
    return max(0, round(now.timestamp() * 1000) - min(known))


def format_progress(name: str, numbers: Mapping[str, Any]) -> str:
    """Return the numbers as one readable line."""
    lag = numbers["maxLagMs"]
    return (
        f"{name} batch {numbers['batchId']}: {numbers['rows']:,} rows, {numbers['rowsPerSecond']:,.0f} rows/s, "
        f"{numbers['batchMs'] / 1000:.2f} s (planning {numbers['planMs'] / 1000:.2f} s), "
        f"lag {'unknown' if lag is None else f'{lag / 1000:.1f} s'}, {numbers['shards']} shards, "
        f"{numbers['ended']} ended"
    )


def progress_frame(query: Any) -> pd.DataFrame:
    """Return the recent progress of a query as a pandas data frame with a row per batch.

    Spark keeps 100 reports (``spark.sql.streaming.numRecentProgressUpdates``). Columns: see `describe_progress`;
    ``timestamp`` is a UTC timestamp here, and batches without this source's offsets are left out.
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
            """Called when there was nothing to process."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 — Spark's name
            """Called when a query ended."""

    return ProgressListener()
