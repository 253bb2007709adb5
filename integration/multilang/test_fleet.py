"""Our daemons with children that are not ours: splits and a merge under load, a kill, a freeze, and an orderly stop."""

from __future__ import annotations

import signal
import time

from integration.java.evidence import wait_for
from integration.java.load import Load
from integration.multilang import accounts
from integration.multilang.scene import Tapped, control, has_work, logs, lost
from tests import HANG

FAILOVER = {"failoverTimeMillis": 3000}


def finish(load, daemons, running):
    """Wait until each record was delivered to a child, and stop the daemons that still run; returns their exit codes."""

    def missing():
        return load.stored.keys() - accounts.payloads(daemons)

    wait_for(lambda: not missing(), HANG, lambda: f"{len(missing())} missing; {logs(*daemons)()}")
    for daemon in running:
        daemon.worker.process.signal(signal.SIGTERM)
    return [daemon.worker.process.wait(HANG) for daemon in running]


def test_reshards_a_kill_and_a_freeze(stage, children):
    stream = application = "fleet"
    stage.kinesis.create_stream(StreamName=stream, ShardCount=2)
    kinds = [children.processor("Version3"), children.node, children.processor("Version2")]
    programs = {number: kinds[number % 3] for number in range(32)}

    def start(name):
        return Tapped(stage, name, stream, application, programs, ours=True, **FAILOVER)

    a, b = start("a"), start("b")
    with Load(stage, stream, rate=300) as load:
        for daemon in (a, b):
            wait_for(has_work(daemon), HANG, logs(a, b))
        control(stage, stream).split()
        time.sleep(2)
        control(stage, stream).merge()
        time.sleep(1)
        a.worker.kill()
        c = start("c")
        wait_for(has_work(c), HANG, logs(b, c))
        control(stage, stream).split()

        # While b is frozen, c takes its leases. When it wakes up, its children hear that they are gone.
        b.worker.process.signal(signal.SIGSTOP)
        frozen = [shard for shard, parts in b.conversations().items() if parts[-1].status is None]
        assert frozen
        before = len(lost(b))

        def taken():
            now = accounts.by_shard([c])
            return set(frozen) <= now.keys()

        try:
            wait_for(taken, HANG, logs(c))
        finally:
            b.worker.process.signal(signal.SIGCONT)
        wait_for(lambda: len(lost(b)) >= before + len(frozen), HANG, logs(b))
        time.sleep(1)
    daemons = (a, b, c)
    assert finish(load, daemons, (b, c)) == [0, 0]
    count, continued = accounts.check(daemons)
    total = sum(len(daemon.records()) for daemon in daemons)
    print(
        f"{load.count} records, {total - load.count} delivered again, {count} children, {continued} continued"
    )
    assert continued >= 2
    ended = [
        conversation
        for daemon in daemons
        for parts in daemon.conversations().values()
        for conversation in parts
        if conversation.calls[-1] == "shardEnded"
    ]
    assert len({conversation.shard for conversation in ended}) == 4, (
        "two splits and a merge close four shards"
    )
    # Each child of a daemon that was not killed has ended, and of its own accord.
    assert all(
        conversation.status == 0
        for daemon in (b, c)
        for parts in daemon.conversations().values()
        for conversation in parts
    )
