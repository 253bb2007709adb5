"""Groups of workers (zones, clusters): the label is the beginning of the worker id, up to a separator.

A peer's group can only be read from the ``leaseOwner`` text of the leases that it holds, so the label has to be in
there. Ids without the separator (a Java worker's UUID, say) have no group; all of them count as one.
"""

from __future__ import annotations

from collections.abc import Iterable

SEPARATOR = "|"
"""Between label and the rest of a worker id. Host names, process ids and UUIDs do not contain it; a fleet whose ids
already carry a label (``cluster-worker``) sets its own in `ConsumerConfig.worker_group_separator`."""

NO_GROUP = ""

_MOST_KEPT = 16_384
"""Workers whose groups are kept; restarts make new ids without end."""


def group_of(worker_id: str, separator: str = SEPARATOR) -> str:
    """The group of a worker: what stands before the first separator, or `NO_GROUP`."""
    label, found, _ = worker_id.partition(separator)
    return label if found else NO_GROUP


class Groups(dict[str, str]):
    """Groups by worker id, each read from its id once: every look asks for every worker's."""

    def __init__(self, separator: str = SEPARATOR) -> None:
        super().__init__()
        self._separator = separator

    def __missing__(self, worker_id: str) -> str:
        if len(self) >= _MOST_KEPT:
            self.clear()
        group = self[worker_id] = group_of(worker_id, self._separator)
        return group

    def differ(self, workers: Iterable[str]) -> bool:
        """Whether not all of these workers are of one group."""
        groups = map(self.__getitem__, workers)
        first = next(groups, NO_GROUP)
        return any(group != first for group in groups)


def grouped_id(worker_id: str, group: str | None, separator: str = SEPARATOR) -> str:
    """A worker id that carries its group; one that carries it already stays as it is."""
    if not group or group_of(worker_id, separator) == group:
        return worker_id
    return f"{group}{separator}{worker_id}"
