"""The outbox of a sink's transaction while its processes are killed at every step: each output once, for readers of this SDK."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sqlalchemy = pytest.importorskip("sqlalchemy")

from integration.effects.killed import DATABASES, running  # noqa: E402
from integration.effects.outbox_process import EFFECTS, POINTS  # noqa: E402
from integration.postgres import running_postgres, why_no_postgres  # noqa: E402
from kinesis_sdk.consumer import ConsumerConfig, Worker  # noqa: E402
from kinesis_sdk.producer import Put  # noqa: E402
from kinesis_sdk.relay import Outbox  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def outputs(endpoint_url: str) -> tuple[int, list[int]]:
    """Return the number of stored outputs, and what a reader of this SDK gets."""
    config = ConsumerConfig(initial_position="TRIM_HORIZON")
    got: dict[bool, list[int]] = {False: [], True: []}
    for recognizes, found in got.items():
        Worker(
            "bills",
            application_name=f"reader-{recognizes}",
            handler=lambda batch, found=found: found.extend(int(record.data) for record in batch.records),
            config=config.with_fields(recognize_repetitions=recognizes),
            endpoint_url=endpoint_url,
            region_name="us-east-1",
            until="now",
        ).run()
    return len(got[False]), got[True]


@pytest.mark.skipif(why_no_postgres() is not None, reason=str(why_no_postgres()))
def test_publishers_take_turns_although_a_row_with_a_lower_number_is_committed_later() -> None:
    with running_postgres() as url:
        outbox, other = Outbox(url, name="bills"), Outbox(url, name="others")
        outbox.tables.ensure()
        put = Put("bills", "k", b"x")
        with (
            outbox.engine.connect() as late,
            outbox.engine.connect() as first,
            outbox.engine.connect() as second,
        ):
            late.execute(outbox._rows.insert(), [outbox._values(put, "late")])
            with outbox.engine.begin() as early:
                early.execute(outbox._rows.insert(), [outbox._values(put, "early")])
            assert [place for place, *_ in outbox.next_rows(first)] == [2]
            late.execute(other._rows.insert(), [other._values(put, "late")])
            late.commit()
            assert outbox.next_rows(second) == []
            assert [place for place, *_ in other.next_rows(second)] == [3]
            outbox.finish(first, [2])
            first.commit()
            assert [place for place, *_ in outbox.next_rows(second)] == [1]
        outbox.close()
        other.close()


@pytest.mark.parametrize("database", DATABASES)
def test_each_output_of_a_transaction_is_delivered_once_at_whatever_step_a_process_dies(
    database: str, tmp_path: Path
) -> None:
    module, streams = "integration.effects.outbox_process", ("orders", "bills")
    with running(module, streams, EFFECTS.metadata, database, tmp_path, output="bills") as run:
        outbox = Outbox(run.engine, name="bills")

        def is_done() -> bool:
            return len(set(run.numbers(EFFECTS))) >= run.put and not outbox.waiting()

        run.play(POINTS, is_done)
        run.close()
        effects, (stored, delivered), kills = run.numbers(EFFECTS), outputs(run.endpoint_url), run.kills()
    told = ", ".join(f"{count} {point}" for point, count in sorted(kills.items()))
    print(f"outbox {database}: {run.put} records, {stored - len(delivered)} copies; killed {told}")
    assert sorted(effects) == list(range(run.put))
    assert sorted(delivered) == list(range(run.put))
    assert stored > run.put, "the kills have made copies, which readers left out"
    assert set(kills) == set(POINTS)
