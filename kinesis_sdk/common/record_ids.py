"""Identity of a user record: text that is the same in every process that reads the record, and at every read.

A sink that stores the identity with the effect of a record recognizes a redelivered record:

```sql
INSERT INTO payments (record_id, amount) VALUES (?, ?) ON CONFLICT (record_id) DO NOTHING
```

`docs/exactly-once.md` has the recipes for SQL, DynamoDB and objects.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from kinesis_sdk.common.records import UserRecord


def record_id(stream: str, shard_id: str, sequence_number: str, sub_sequence_number: int | None = 0) -> str:
    """Return the identity of a user record: ``stream/shard/sequence number/sub-sequence number``.

    Identities do not sort by position: as text, 10 precedes 9. An identity has at most 400 characters, usually about 90:
    letters, digits, ``_``, ``.``, ``-`` and the three ``/``. So an identity may be the name of an object.

    Args:
        stream: Name of the stream; not its ARN, so that the result does not depend on how a reader names the stream. Streams of
            the same name in several accounts or regions that share a table need a column for the account or region.
        shard_id: The shard.
        sequence_number: Sequence number of the Kinesis record.
        sub_sequence_number: Index in the aggregate from 0; 0 or None for a record that was not aggregated.
    """
    return f"{stream}/{shard_id}/{sequence_number}/{sub_sequence_number or 0}"


@lru_cache(maxsize=4096)
def located_record_type(base: type[UserRecord], stream: str, shard_id: str) -> type[UserRecord]:
    """Return a class of user records with an ``id``.

    Stream and shard are bound to the class and not to each record, so a record costs nothing extra. The class
    is the same for equal arguments; a record that is pickled keeps its ``id``.

    Args:
        base: `UserRecord` or a subclass of it.
        stream: Name of the stream.
        shard_id: Shard of the records.
    """
    prefix = record_id(stream, shard_id, "", 0).removesuffix("/0")

    def identity(record: UserRecord) -> str:
        return f"{prefix}{record[2]}/{record[5]}"

    def reduced(record: UserRecord) -> tuple[Any, ...]:
        return _located, (base, stream, shard_id, tuple(record))

    members = {
        "__slots__": (),
        "__doc__": base.__doc__,
        "__module__": base.__module__,
        "__reduce__": reduced,
        "id": property(identity, doc=UserRecord.id.__doc__),
    }
    return cast("type[UserRecord]", type(base.__name__, (base,), members))


def _located(base: type[UserRecord], stream: str, shard_id: str, fields: tuple[Any, ...]) -> UserRecord:
    kind: type[UserRecord] = located_record_type(base, stream, shard_id)  # type: ignore[arg-type]  # mypy 10988
    return kind(*fields)
