"""Not part of CI (minutes): daemons of both kinds on one lease table, under load, with reshards, kills and freezes of each."""

from __future__ import annotations

import signal
import time

from integration.java.evidence import wait_for
from integration.java.load import Load
from integration.multilang import accounts
from integration.multilang.scene import Tapped, control, has_work, logs, lost
from tests import HANG


def test_a_mixed_fleet_with_kills_and_freezes_of_each_kind(stage, children):
    stream = application = "mixed"
    stage.kinesis.create_stream(StreamName=stream, ShardCount=4)
    kinds = [children.processor("Version3"), children.node, children.processor("Version2")]
    programs = {number: kinds[number % 3] for number in range(64)}
    daemons: list[Tapped] = []

    def start(name, *, ours):
        daemons.append(Tapped(stage, name, stream, application, programs, ours=ours))
        return daemons[-1]

    def working(*names):
        for daemon in daemons:
            if daemon.worker.name in names:
                wait_for(has_work(daemon), 150, logs(daemon))

    def freeze(victim):
        """Freeze a daemon until others have all its shards, and return how many children then heard about it."""
        shards = {shard for shard, parts in victim.conversations().items() if parts[-1].status is None}
        assert shards
        moment = time.monotonic()
        before = len(lost(victim))
        victim.worker.process.signal(signal.SIGSTOP)

        def taken():
            others = accounts.by_shard([daemon for daemon in daemons if daemon is not victim])
            return all(
                any(part.status is None or part.lines[0][0] > moment for part in others.get(shard, ()))
                for shard in shards
            )

        try:
            wait_for(taken, 120, logs(*daemons))
        finally:
            victim.worker.process.signal(signal.SIGCONT)
        wait_for(lambda: len(lost(victim)) >= before + len(shards), 60, logs(victim))
        return len(shards)

    with Load(stage, stream, rate=200) as load:
        java = start("java-1", ours=False)
        working("java-1")
        ours = start("ours-1", ours=True)
        working("ours-1")
        control(stage, stream).split()
        time.sleep(5)
        print(f"froze the Java daemon with {freeze(java)} shards")
        control(stage, stream).merge()
        time.sleep(10)
        print(f"froze our daemon with {freeze(ours)} shards")
        java.worker.kill()
        start("java-2", ours=False)
        time.sleep(20)
        control(stage, stream).split()
        ours.worker.kill()
        working("java-2")
        second = start("ours-2", ours=True)
        working("ours-2")
        time.sleep(20)

    def missing():
        return load.stored.keys() - accounts.payloads(daemons)

    wait_for(lambda: not missing(), 120, lambda: f"{len(missing())} missing; {logs(*daemons)()}")
    second.worker.process.signal(signal.SIGTERM)
    assert second.worker.process.wait(HANG) == 0
    count, continued = accounts.check(daemons)
    total = sum(len(daemon.records()) for daemon in daemons)
    print(
        f"{load.count} records, {total - load.count} delivered again, {count} children, {continued} continued"
    )
    assert continued >= 8
