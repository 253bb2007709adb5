"""Our producer and every consumer that this project meets: record for record, and each behind the checkpoints of another."""

from __future__ import annotations

import time

from integration.java.cells import Cells
from integration.java.evidence import wait_for
from integration.java.load import Load
from tests import HANG


def test_every_consumer_reads_what_our_producer_wrote_and_goes_on_behind_another(stage):
    cells = Cells(stage, "matrix")
    cells.start()
    with (
        cells.watched(),
        Load(stage, "matrix", rate=300) as together,
        Load(stage, "matrix", rate=40, prefix="plain-", aggregation_enabled=False) as alone,
    ):
        cells.work()
        cells.split_and_merge()
        before = cells.replace()
        time.sleep(2)
    assert sum(result.sub_sequence_number > 0 for result in together.stored.values()) > together.count / 2
    assert not any(result.sub_sequence_number for result in alone.stored.values())
    acknowledged = together.stored.keys() | alone.stored.keys()
    cells.finish("ours", dict.fromkeys(cells.workers, acknowledged))

    # In the table of KCL 3.5, where its own items live, our clean-up deletes the finished leases and nothing else.
    wait_for(
        lambda: len(stage.rows(cells.applications["3.5.1"])) == 2, HANG, "the finished leases are deleted"
    )
    assert {"Leader", "Migration3.0", "first-java"} <= before.keys()
    assert cells.foreign() == before
