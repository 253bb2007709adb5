"""Options of the demo."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Options of ``kinesis-sdk demo``; see its ``--help``."""

    repeat: int = 1
    shards: int = 4
    workers: int = 3
    duration: float = 12.0
    failover_time: float = 3.0
    split_shard: bool = True
    kill_worker: bool = True
    freeze_worker: bool = True
    """Freeze one worker process until its leases have expired. Needs at least three workers."""
    lose_responses: bool = True
    """Let the fake AWS lose responses of PutRecords, and store one of these requests late."""
    exactly_once: bool = True
    """Put with ``idempotent=True``, and commit effects and positions together in a SQLite database."""
    endpoint_url: str | None = None
    stream: str | None = None
    region: str | None = None
    profile: str | None = None
    """Profile of ``~/.aws``; None for the usual credentials. The fake AWS needs none."""
