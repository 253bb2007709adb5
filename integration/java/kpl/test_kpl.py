"""The real KPL beside our producer on one stream, through a split and a merge, in the hands of our consumer and of a KCL."""

from __future__ import annotations

from integration.java.books import audit, read_stream
from integration.java.evidence import duplicates, wait_for
from integration.java.kpl.install import JUDGE
from integration.java.kpl.judge import deaggregate
from integration.java.kpl.producer import Kpl, Steady, plan
from integration.java.load import Load
from integration.java.processes import METRICS
from integration.java.scenes import everything_arrived, make_leases, split_and_merge
from tests import HANG


def test_the_kpl_and_ours_on_one_stream(tls_stage):
    stage, stream = tls_stage, "kpl"
    stage.kinesis.create_stream(StreamName=stream, ShardCount=2)
    ours_makes = make_leases(stage, stream, "kpl-ours", 2)
    java_makes = make_leases(stage, stream, "kpl-java", 2, worker_metrics=METRICS[JUDGE])
    java = stage.start_worker("java", stream, "kpl-java", version=JUDGE, middle=1.0)
    first = stage.start_ours("first", stream, "kpl-ours", middle=1.0)
    wait_for(lambda: java.events("initialize"), HANG, java.process.tail)
    with (
        Load(stage, stream, rate=200, prefix="ours-") as load,
        Steady(Kpl(stage, stream), plan(14, "kpl-"), rate=300) as kpl,
    ):
        wait_for(
            lambda: (
                {one[:4] for event in first.events("records") for _, _, one, _ in event["records"]}
                >= {"kpl-", "ours"}
            ),
            HANG,
            first.process.tail,
        )
        wait_for(lambda: java.events("processed"), HANG, java.process.tail)
        split_and_merge(stage, stream)
        # In the middle of aggregates, because that is where it has checkpointed.
        first.kill()
        second = stage.start_ours("second", stream, "kpl-ours", middle=1.0)
        wait_for(lambda: len(second.events("processed")) > 10, HANG, second.process.tail)
    failed = {name: one for name, one in kpl.stored.items() if not one.is_ok}
    assert kpl.stored.keys() == kpl.put.keys()
    assert not failed
    theirs = {kpl.put[name].data.decode() for name in kpl.stored}
    acknowledged = theirs | load.stored.keys()

    # Ours delivers every record of both, each where its producer was told that it is.
    found = everything_arrived(lambda: acknowledged, [first, second])
    places = {(one.shard, one.number, one.data): one.key for one in found}
    for name, one in kpl.stored.items():
        entry = kpl.put[name]
        assert places[one.shard, int(one.sequence_number), entry.data.decode()] == entry.key
    sub_places = {(one.shard, one.number, one.sub): one.data for one in found}
    for name, result in load.stored.items():
        assert sub_places[result.shard_id, int(result.sequence_number), result.sub_sequence_number] == name
    books = audit(stage, stream, [ours_makes, first, second], acknowledged)
    print(f"the KPL and ours x ours: {books}")
    assert not books.faults, books.faults
    assert books.resumed_inside, "it went on in the middle of an aggregate"

    # The KCL delivers what its code makes of the stream: all of ours, and the KPL's but for aggregates across a reshard.
    by_kcl = {one.data.decode() for one in deaggregate(stage, stream)}
    assert load.stored.keys() <= by_kcl
    lost = theirs - by_kcl
    astride = {
        record.data for shard in read_stream(stage, stream).values() for record in shard if record.optional
    }
    print(
        f"of {len(theirs):,} records acknowledged by the KPL, {len(lost)} are in aggregates that a KCL drops"
    )
    assert lost <= astride
    java_found = everything_arrived(lambda: acknowledged & by_kcl, [java])
    assert not lost & {one.data for one in java_found}
    java_books = audit(stage, stream, [java_makes, java], acknowledged & by_kcl)
    print(f"the KPL and ours x KCL {JUDGE}: {java_books}")
    assert not java_books.faults, java_books.faults
    again = {name for name, result in load.stored.items() if len(result.attempts) > 1}
    again |= {kpl.put[name].data.decode() for name, one in kpl.stored.items() if one.attempts > 1}
    assert duplicates(java_found).keys() <= again, "a record comes twice only if it was sent twice"
