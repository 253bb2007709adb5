"""The real KPL and every consumer: record for record, and each behind the checkpoints of another.

Not part of ``make integration``; ``make java`` runs it.
"""

from __future__ import annotations

import time

from integration.java.cells import Cells
from integration.java.kpl.conftest import _tls_account, tls_stage
from integration.java.kpl.judge import deaggregate
from integration.java.kpl.producer import Kpl, Steady, plan

__all__ = ["_tls_account", "tls_stage"]


def test_every_consumer_reads_what_the_kpl_wrote_and_goes_on_behind_another(tls_stage):
    stage, stream = tls_stage, "matrix-kpl"
    cells = Cells(stage, stream)
    cells.start()
    with cells.watched(), Steady(Kpl(stage, stream), plan(41, "kpl-"), rate=300) as kpl:
        cells.work()
        cells.split_and_merge()
        cells.replace()
        time.sleep(2)
    assert all(one.is_ok for one in kpl.stored.values())
    everything = {kpl.put[name].data.decode() for name in kpl.stored}
    # An application that had a Java worker at some time may lack what a KCL drops: aggregates across the reshard.
    by_kcl = {one.data.decode() for one in deaggregate(stage, stream)}
    print(f"of {len(everything):,} records acknowledged by the KPL, a KCL drops {len(everything - by_kcl)}")
    cells.finish("the KPL", dict.fromkeys(cells.workers, everything & by_kcl))
