"""A shard whose handler fails: a description, and the actions of an operator. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.fleet.formatting import duration
from kinesis_sdk.admin.fleet.model import Action, HandlerFailure, LeaseView


def failing_text(failing: HandlerFailure) -> str:
    """Return a sentence about a failing handler: the duration, the record, and the error."""
    if failing.position is None:
        what = "its handler has failed"
    elif failing.records == 1:
        what = f"process_records has failed on record {failing.position}"
    else:
        what = f"process_records has failed on {failing.records:,} records from {failing.position} on"
    retry = f", next call in {duration(failing.retry_in)}" if failing.retry_in >= 1 else ""
    return f"{what} for {duration(failing.seconds)} ({failing.attempts:,} times{retry}): {failing.error}"


def actions_of(application: str, streams: Sequence[str], lease: LeaseView, shard: str) -> tuple[Action, ...]:
    """Return the actions that help a shard whose handler fails. ``shard`` is in the form that users write."""
    failing = lease.failing
    if failing is None:
        return ()
    found = [
        Action(title="call it again now", command=Command.of("retry", application=application, shard=shard))
    ]
    if failing.position is None:
        return tuple(found)
    position = f"at:{failing.position}"
    stream = lease.stream.split(":")[1] if lease.stream and lease.stream.count(":") == 2 else lease.stream
    stream = stream or (streams[0] if len(streams) == 1 else None)
    if failing.records == 1:
        found.append(
            Action(
                title="leave this record out, and no other",
                command=Command.of("skip-record", application=application, shard=shard),
            )
        )
    if stream is not None:
        number = shard.rpartition(":")[2]
        found.append(
            Action(
                title="open the record" if failing.records == 1 else "open the records",
                command=Command.of(
                    "tail",
                    **{
                        "stream": stream,
                        "shard": number,
                        "from": position,
                        "limit": str(min(failing.records, 100)),
                    },
                ),
            )
        )
    found.append(
        Action(
            title="process it again later, once the handler is mended",
            command=Command.of("rewind", application=application, shard=shard, to=position),
        )
    )
    return tuple(found)
