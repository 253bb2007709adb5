"""Cleanup of a sink: deletes the rows of shards that no longer exist.

```
shard ends ─► row `ended` ─► lease deleted (children started) ─► retention over: no longer listed ─► half an hour later: row deleted
               │                     │                                   │
               └─ an operator may rewind the lease, or the lease table may be lost: as long as the shard is listed, the row is what
                  keeps a worker from processing its records again
```

A row is deleted if it is `ended`, its shard has no lease, and two consecutive listings lacked the shard. Records of an
unlisted shard cannot be read again, so the row has no further use: a child looks up the rows of its parents, and a missing row
counts as ended. Rows that are not `ended` stay, because they show that some records were not processed.

Cost for the leader: one listing of the sink's rows every half hour; and if there are rows without a lease, a consistent Scan of
the lease table and a ListShards.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import cast

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.consumer.leases.table.store import LeaseStore
from kinesis_sdk.consumer.runtime.runtime import Runtime
from kinesis_sdk.consumer.runtime.threads import result_of
from kinesis_sdk.consumer.shard_sync.cleanup import plan_forgotten
from kinesis_sdk.consumer.sinks.sink import DeletesRows, SinkKey
from kinesis_sdk.consumer.streams import StreamDirectory, TrackedStream

_LOGGER = FieldLogger(logging.getLogger(__name__))

INTERVAL = 1800.0
"""Seconds between two checks."""


class PositionCleanup:
    """Deletes rows of a sink that are no longer needed. `start` is for one thread; the check runs on the pool for steps.

    ``list_readable`` returns the ids of all readable shards of a stream.
    """

    def __init__(
        self,
        sink: DeletesRows,
        *,
        application: str,
        streams: StreamDirectory,
        store: LeaseStore,
        list_readable: Callable[[TrackedStream], Collection[str]],
        runtime: Runtime,
        worker_id: str,
    ) -> None:
        self._sink = sink
        self._application = application
        self._streams = streams
        self._store = store
        self._list_readable = list_readable
        self._runtime = runtime
        self._worker_id = worker_id
        self._busy = threading.Lock()
        self._absent: dict[str | None, set[str]] = {}

    def start(self) -> None:
        """Start a check in the background, unless one still runs: a hung sink must not block the lease loops."""
        if self._busy.acquire(blocking=False):
            self._runtime.run_step(self._check)

    def forget(self) -> None:
        """Discard the results of the last check, because another worker leads."""
        self._absent.clear()

    def _check(self) -> None:
        try:
            for tracked in self._streams.current():
                self._check_stream(tracked)
        except KinesisSdkError as error:
            _LOGGER.warning(
                "worker %s: the clean-up of positions in the sink failed, next attempt in half an hour: %s",
                self._worker_id,
                error,
                extra=log_fields(worker=self._worker_id),
            )
        except Exception:
            _LOGGER.exception(
                "worker %s: the clean-up of positions in the sink failed, next attempt in half an hour",
                self._worker_id,
                extra=log_fields(worker=self._worker_id),
            )
        finally:
            self._busy.release()

    def _check_stream(self, tracked: TrackedStream) -> None:
        name = tracked.stream.name
        run = self._runtime.run_async
        stored = {*cast("Collection[str]", result_of(run, self._sink.lease_keys(self._application, name)))}
        # Streams of the same name in other accounts, or before the stream was recreated, have rows under other keys.
        shards = {key.rpartition(":")[2] for key in stored}
        own = {shard for shard in shards if tracked.lease_key(shard) in stored}
        absent: set[str] = set()
        if own:
            # Read the leases before the shards: a shard that is created in between then has a lease or is listed.
            scan = self._store.scan(consistent=True)
            leased = {lease.lease_key for lease in scan.leases} | set(scan.unreadable)
            free = {shard for shard in own if tracked.lease_key(shard) not in leased}
            absent = plan_forgotten(free, self._list_readable(tracked)) if free else set()
        before = self._absent.get(tracked.key, set())
        self._absent[tracked.key] = absent
        for shard in sorted(absent & before):
            key = SinkKey(self._application, name, tracked.lease_key(shard))
            if result_of(run, self._sink.delete_ended(key)):
                _LOGGER.info(
                    "shard %s: deleted its position in the sink, because the stream no longer has the shard",
                    shard,
                    extra=log_fields(stream=tracked.stream, shard=shard, worker=self._worker_id),
                )
