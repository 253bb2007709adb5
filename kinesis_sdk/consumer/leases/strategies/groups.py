"""Groups of workers (zones, clusters): the label is the beginning of the worker id, up to a separator.

The lease table names a worker only in the ``leaseOwner`` of the leases that it holds, so the label must be part of the worker
id. Ids without the separator (for example a Java worker's UUID) have no group; together they count as one group.
"""

from __future__ import annotations

from collections.abc import Iterable

GROUP_SEPARATOR = "|"
"""Separates the label from the rest of a worker id. Host names, process ids and UUIDs do not contain it; a fleet whose ids already carry a
label (``cluster-worker``) sets its own separator, see ``worker_group_separator``."""

NO_GROUP = ""

_MAX_CACHED = 16_384
"""Maximum number of workers whose groups are cached; every restart makes a new id."""


def group_of(worker_id: str, separator: str = GROUP_SEPARATOR) -> str:
    """Return the group of a worker: the text before the first separator, or `NO_GROUP`."""
    label, found, _ = worker_id.partition(separator)
    return label if found else NO_GROUP


class Groups(dict[str, str]):
    """Groups by worker id. Each id is parsed once, because every scan needs the group of every worker."""

    def __init__(self, separator: str = GROUP_SEPARATOR) -> None:
        super().__init__()
        self._separator = separator

    def __missing__(self, worker_id: str) -> str:
        if len(self) >= _MAX_CACHED:
            self.clear()
        group = self[worker_id] = group_of(worker_id, self._separator)
        return group

    def differ(self, workers: Iterable[str]) -> bool:
        """Return whether these workers belong to more than one group."""
        groups = map(self.__getitem__, workers)
        first = next(groups, NO_GROUP)
        return any(group != first for group in groups)


def grouped_id(worker_id: str, group: str | None, separator: str = GROUP_SEPARATOR) -> str:
    """Return a worker id with its group as prefix, unless the id already has this prefix."""
    if not group or group_of(worker_id, separator) == group:
        return worker_id
    return f"{group}{separator}{worker_id}"
