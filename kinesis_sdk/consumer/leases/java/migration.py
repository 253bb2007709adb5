"""Migration of a fleet from KCL 2.x to 3.x: the worker that decides when the fleet is ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kinesis_sdk.consumer.leases.table.lease import Item, Lease

_SEED = 1947
_MULTIPLIER, _INCREMENT, _BITS_48, _BITS_31 = 0x5DEECE66D, 0xB, 2**48 - 1, 2**31


def kcl2_leader(leases: Iterable[Lease]) -> str | None:
    """Return the worker that KCL 2.x (or KCL 3.x in 2.x compatible mode) elects; None if no lease has an owner.

    The elected worker is the first owner after ``Collections.shuffle(sortedOwners, new Random(1947))``, of any kind
    (``DeterministicShuffleShardSyncLeaderDecider``). Only the elected worker checks whether a fleet is ready to migrate from 2.x to 3.x,
    and a worker of this package does not.
    """
    # Java compares strings by UTF-16 code units.
    owners = sorted(
        {lease.owner for lease in leases if lease.owner is not None},
        key=lambda owner: owner.encode("utf-16-be", "surrogatepass"),
    )
    state = (_SEED ^ _MULTIPLIER) & _BITS_48

    def next_int(bound: int) -> int:
        """Return the result of ``java.util.Random.nextInt(bound)``."""
        nonlocal state
        while True:
            state = (state * _MULTIPLIER + _INCREMENT) & _BITS_48
            drawn = state >> 17
            if bound & (bound - 1) == 0:
                return bound * drawn >> 31
            rest = drawn % bound
            if drawn - rest + bound - 1 < _BITS_31:
                return rest

    for size in range(len(owners), 1, -1):
        other = next_int(size)
        owners[size - 1], owners[other] = owners[other], owners[size - 1]
    return owners[0] if owners else None


MIGRATION_KEY = "Migration3.0"
"""Key of the item with the state of a KCL fleet's migration from 2.x to 3.x."""


def is_upgrading_from_2x(item: Item | None) -> bool:
    """Return whether the item under `MIGRATION_KEY` shows that the fleet still runs in KCL 2.x compatible mode."""
    version = item.get("cv") if item is not None else None
    return isinstance(version, Mapping) and version.get("S") == "CLIENT_VERSION_UPGRADE_FROM_2X"
