"""Checks of the doctor: functions from facts to findings. No clock, no calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kinesis_sdk.admin.applications import StreamFacts
from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.doctor.facts import Facts, Permission
from kinesis_sdk.admin.doctor.model import Finding, Level, worst_first
from kinesis_sdk.admin.doctor.permissions import ACTIONS
from kinesis_sdk.admin.fleet.formatting import duration
from kinesis_sdk.admin.fleet.lag import LagProbeResult
from kinesis_sdk.admin.fleet.model import FleetView, Severity
from kinesis_sdk.admin.fleet.observe import FleetObserver
from kinesis_sdk.admin.fleet.problems import RULES, ProblemSettings
from kinesis_sdk.admin.load import SHARD_RECORDS_PER_SECOND
from kinesis_sdk.common.aws import is_of_account
from kinesis_sdk.common.codec import HOMES
from kinesis_sdk.common.service_clock import least_skew
from kinesis_sdk.common.shards import is_table_shard_id
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer import IntervalSettings, TableScan
from kinesis_sdk.consumer.leases import attributes, default_intervals, scan_read_units
from kinesis_sdk.consumer.leases.java import MIGRATION_KEY, is_upgrading_from_2x

_SETTINGS = ProblemSettings(near_horizon=0.25, horizon_soon=0.5, no_lease=0.0)
"""Thresholds of the rules for an examination, which reads once and should warn in advance."""
_FULL, _BUSY = 0.95, 0.7
"""Shares of a shard's write limit from which a finding is red or yellow."""
_UNEVEN = 4.0
"""Multiple of the mean rate from which the busiest shard counts as hot."""
_ONE_KEY = 0.5
"""Share of the records from which a single partition key limits the scaling of the stream."""
_FEW_RECORDS = 100
"""Minimum number of records from which a sample is meaningful for keys and sizes."""
_SMALL_RECORD = 5 * 1024
"""Bytes of a Kinesis record below which aggregation pays: Kinesis bills in units of 25 KB and accepts 1,000 records per second."""
_OWNER_INDEX = "LeaseOwnerToLeaseKeyIndex"
_KCL3_ENTITY = "WORKER_METRIC_STATS"


def judge(facts: Facts) -> tuple[Finding, ...]:
    """Return all findings, worst first.

    A check that fails on its facts becomes a finding itself: this is the first command that users run against a real account,
    so an unexpected response must not end it.
    """
    findings: list[Finding] = []
    for check in _CHECKS:
        try:
            findings.extend(check(facts))
        except Exception as error:  # noqa: BLE001 - reported as a finding
            name = check.__name__.strip("_").replace("_", " ")
            findings.append(
                Finding(
                    code="check-failed",
                    level=Level.NOTE,
                    title="check not made",
                    text=f"The check of {name} could not read what AWS returned: {type(error).__name__}: {error}",
                    remedy="Report this text to the authors of kinesis-sdk.",
                )
            )
    return worst_first(findings)


def _connection(facts: Facts) -> Iterator[Finding]:
    for service, reason in facts.unreachable.items():
        yield Finding(
            code="unreachable",
            level=Level.RED,
            title=f"{service} not reached",
            text=f"Calls to {service} fail: {reason}",
            remedy="Check region, credentials, endpoint and network; the other checks of this service were skipped.",
        )


def _endpoints(facts: Facts) -> Iterator[Finding]:
    hosts = [host for each in facts.hosts.values() for host in each]
    if not hosts:
        return
    of_account = [host for host in hosts if is_of_account(host)]
    if not of_account:
        yield Finding(
            code="endpoint",
            level=Level.NOTE,
            title="endpoints",
            text=f"The calls went to {', '.join(hosts)}.",
        )
        return
    yield Finding(
        code="endpoint",
        level=Level.RED if facts.unreachable else Level.NOTE,
        title="endpoints of the account",
        text=f"The calls went to {', '.join(hosts)}. boto3 calls hosts named after the account as soon as it "
        "knows the account (for Kinesis since version 1.43.78).",
        remedy="If a proxy, a firewall or a list of allowed hosts admits only the hosts of the region, allow these hosts as well, or set "
        "AWS_ACCOUNT_ID_ENDPOINT_MODE=disabled.",
    )


def _probes(facts: Facts) -> Iterator[Finding]:
    denied = {
        name.partition(":")[2]
        for name, tried in facts.actions.items()
        if tried.permission is Permission.DENIED
    }
    for name, reason in facts.failures.items():
        if name not in denied:
            yield Finding(
                code="probe-failed",
                level=Level.YELLOW,
                title="not examined",
                text=f"{name} failed: {reason}",
                remedy="Run the command again; if the finding stays, the text above names the cause.",
            )


def _clock(facts: Facts) -> Iterator[Finding]:
    title = "clock"
    if facts.skew is None:
        yield Finding(
            code="clock-skew", level=Level.NOTE, title=title, text="No response had a date to compare with."
        )
        return
    # The difference lies between the bounds; judge by the smallest possible difference.
    least = abs(least_skew([facts.skew]) or 0.0)
    if least < _SETTINGS.skew:
        yield Finding(
            code="clock-skew",
            level=Level.GREEN,
            title=title,
            text="This machine's clock agrees with that of AWS"
            + (f" up to {least:.1f} s." if least >= 1 else " within a second."),
        )


def _permissions(facts: Facts) -> Iterator[Finding]:
    for role in facts.tried_roles:
        actions = [action for action in ACTIONS if role in action.roles and action.name in facts.actions]
        denied = [
            one
            for one in actions
            if facts.actions[one.name].permission is Permission.DENIED and not one.only_for
        ]
        optional = [
            one for one in actions if facts.actions[one.name].permission is Permission.DENIED and one.only_for
        ]
        allowed = sum(facts.actions[one.name].permission is Permission.ALLOWED for one in actions)
        code, title = f"permissions-{role}", f"permissions, {role}"
        if denied:
            yield Finding(
                code=code,
                level=Level.RED if role in facts.roles else Level.YELLOW,
                title=title,
                text=f"Denied: {', '.join(one.name for one in denied)}. {facts.actions[denied[0].name].reason}",
                remedy="Add the actions to the policy (docs/permissions.md lists them)"
                + (
                    "."
                    if role in facts.roles
                    else ", or name the roles that these credentials are for, for example consumer."
                ),
            )
        elif allowed:
            yield Finding(
                code=code,
                level=Level.GREEN,
                title=title,
                text=f"{allowed} of {len(actions)} actions were tried and are allowed.",
            )
        if optional:
            yield Finding(
                code=f"{code}-optional",
                level=Level.NOTE,
                title=title,
                text="Denied actions that only some settings need: "
                + ", ".join(f"{one.name} ({one.only_for})" for one in optional)
                + ".",
            )
    untried: dict[str, list[str]] = {}
    for name, tried in facts.actions.items():
        if tried.permission is Permission.UNKNOWN:
            untried.setdefault(tried.reason, []).append(name)
    for reason, names in untried.items():
        yield Finding(
            code="permissions-not-tried",
            level=Level.NOTE,
            title="permissions, not known",
            text=f"{', '.join(names)}: {reason}.",
        )


def _stream(facts: Facts) -> Iterator[Finding]:
    summary = facts.summary
    if summary is None:
        if facts.stream_missing:
            yield Finding(
                code="stream-missing",
                level=Level.RED,
                title="stream",
                text=f"There is no stream {printable(facts.stream)} in this account and region.",
                remedy="Check name, account and region, or create it.",
            )
        return
    status = str(summary.get("StreamStatus"))
    mode = str((summary.get("StreamModeDetails") or {}).get("StreamMode", "PROVISIONED"))
    shards = summary.get("OpenShardCount")
    usable = status in ("ACTIVE", "UPDATING")
    yield Finding(
        code="stream-status",
        level=Level.GREEN if usable else Level.RED,
        title="stream",
        text=f"{status}, {mode.lower().replace('_', '-')}, {shards} open shards, "
        f"retention {summary.get('RetentionPeriodHours')} h, records up to {summary.get('MaxRecordSizeInKiB', 1024)} KiB.",
        remedy="" if usable else "Wait until it is ACTIVE, or create it.",
    )
    if summary.get("RecordDistributionStrategy") == "AUTO":
        yield Finding(
            code="distribution-auto",
            level=Level.YELLOW,
            title="record distribution AUTO",
            text="Kinesis places records itself: records of one partition key are in several shards and have no order, and "
            "a KCL discards aggregates of a KPL whose keys belong to other shards.",
            remedy="Switch to USER_PARTITION_KEY if the order of a key matters or if a Java KCL consumes aggregates.",
        )
    encryption = summary.get("EncryptionType", "NONE")
    if encryption == "KMS":
        key = str(summary.get("KeyId", ""))
        own = "alias/aws/kinesis" not in key
        yield Finding(
            code="encryption",
            level=Level.GREEN,
            title="encryption",
            text=f"Encrypted with {'a key of this account' if own else 'the key of AWS'} ({printable(key)})."
            + (" Producers also need kms:GenerateDataKey, and consumers kms:Decrypt." if own else ""),
        )
    else:
        yield Finding(
            code="encryption",
            level=Level.NOTE,
            title="encryption",
            text="The stream is not encrypted at rest.",
            remedy="StartStreamEncryption switches it on without a pause, if your rules ask for it.",
        )
    metrics = [
        name
        for entry in summary.get("EnhancedMonitoring") or ()
        for name in entry.get("ShardLevelMetrics") or ()
    ]
    yield Finding(
        code="enhanced-metrics",
        level=Level.NOTE,
        title="metrics by shard",
        text=f"On: {', '.join(sorted(metrics))}. CloudWatch bills each metric of each shard."
        if metrics
        else "Off: CloudWatch shows the sum of all shards only, so a hot shard does not show there.",
    )
    if facts.consumers:
        states = Counter(str(consumer.get("ConsumerStatus")) for consumer in facts.consumers)
        names = ", ".join(printable(str(one.get("ConsumerName")), 40) for one in facts.consumers[:5])
        bad = {state: count for state, count in states.items() if state not in ("ACTIVE", "CREATING")}
        yield Finding(
            code="fan-out",
            level=Level.YELLOW if bad else Level.NOTE,
            title="enhanced fan-out",
            text=f"{len(facts.consumers)} registered consumers ({names}{', …' if len(facts.consumers) > 5 else ''}); each is "
            "billed by shard and hour, whether it reads or not." + (f" Not usable: {bad}." if bad else ""),
            remedy="Deregister the consumers that no application uses.",
        )


def _limits(facts: Facts) -> Iterator[Finding]:
    limits = facts.limits
    if limits is None:
        return
    for code, title, used, limit in (
        ("shard-limit", "shards of the account", limits.get("OpenShardCount"), limits.get("ShardLimit")),
        (
            "on-demand-limit",
            "on-demand streams",
            limits.get("OnDemandStreamCount"),
            limits.get("OnDemandStreamCountLimit"),
        ),
    ):
        if not isinstance(used, int) or not isinstance(limit, int) or limit <= 0:
            continue
        near = used >= 0.8 * limit
        yield Finding(
            code=code,
            level=Level.YELLOW if near else Level.GREEN,
            title=title,
            text=f"{used:,} of {limit:,} are used.",
            remedy="Ask AWS for a higher limit before the next split or stream needs it." if near else "",
        )


def _table(facts: Facts) -> Iterator[Finding]:
    if facts.lease_store is not None:
        yield from _database(facts, facts.lease_store)
        return
    table = facts.table
    if table is None:
        if facts.table_missing:
            yield Finding(
                code="table-missing",
                level=Level.YELLOW,
                title="lease table",
                text=f"There is no table {facts.application}: the application has never run here, or has another name.",
                remedy="Start a worker, which creates the table, or check name, account and region.",
            )
        return
    keys = [(key.get("AttributeName"), key.get("KeyType")) for key in table.get("KeySchema") or ()]
    if keys != [(attributes.LEASE_KEY, "HASH")]:
        yield Finding(
            code="table-key",
            level=Level.RED,
            title="lease table",
            text=f"The key of table {facts.application} is {keys}, not leaseKey: it is not a lease table.",
            remedy="Choose another application name; workers refuse to start with this table.",
        )
        return
    status = str(table.get("TableStatus", "ACTIVE"))
    usable = status in ("ACTIVE", "UPDATING")
    yield Finding(
        code="table-status",
        level=Level.GREEN if usable else Level.RED,
        title="lease table",
        text=f"{status}, {len(facts.leases or ())} leases.",
        remedy="" if usable else "No worker can renew a lease until the table is ACTIVE.",
    )
    kinds = _owner_kinds(facts)
    indexes = {index.get("IndexName") for index in table.get("GlobalSecondaryIndexes") or ()}
    if _OWNER_INDEX not in indexes and "KCL 3" in kinds:
        yield Finding(
            code="table-index",
            level=Level.YELLOW,
            title="lease table index",
            text=f"The index {_OWNER_INDEX} is missing. A KCL 3 worker scans the whole table instead to find its leases.",
            remedy="A KCL 3 worker creates it if its role has dynamodb:UpdateTable.",
        )
    yield from _capacity(facts, table)
    if not table.get("DeletionProtectionEnabled"):
        yield Finding(
            code="table-deletion-protection",
            level=Level.YELLOW,
            title="lease table",
            text="The table is not protected from deletion. If it is deleted, all positions are lost, and workers begin at their "
            "initial position.",
            remedy="Switch deletion protection on (UpdateTable, free of charge), or set "
            "lease_table_deletion_protection_enabled for a new one.",
        )
    if facts.point_in_time_recovery is not None:
        yield Finding(
            code="table-recovery",
            level=Level.GREEN if facts.point_in_time_recovery else Level.NOTE,
            title="lease table backups",
            text=f"Point-in-time recovery is {'on' if facts.point_in_time_recovery else 'off'}.",
        )


def _database(facts: Facts, place: str) -> Iterator[Finding]:
    if facts.table_missing:
        yield Finding(
            code="table-missing",
            level=Level.YELLOW,
            title="leases",
            text=f"{place} has no leases of {facts.application}: the application has never run with this database, or has another name.",
            remedy="Start a worker, which creates them, or check the name and the URL.",
            command=Command.of("apps"),
        )
    elif facts.leases is not None:
        yield Finding(
            code="table-status",
            level=Level.GREEN,
            title="leases",
            text=f"{len(facts.leases)} leases in {place}.",
        )


def _capacity(facts: Facts, table: Mapping[str, Any]) -> Iterator[Finding]:
    mode = (table.get("BillingModeSummary") or {}).get("BillingMode")
    provisioned = table.get("ProvisionedThroughput") or {}
    reads, writes = provisioned.get("ReadCapacityUnits") or 0, provisioned.get("WriteCapacityUnits") or 0
    if mode == "PAY_PER_REQUEST" or not (reads or writes):
        yield Finding(
            code="table-capacity", level=Level.GREEN, title="lease table capacity", text="Billed on demand."
        )
        return
    leases = [lease for lease in facts.leases or () if not lease.is_finished]
    owners = max(1, len({lease.owner for lease in leases if lease.owner}))
    intervals = default_intervals(IntervalSettings(), len(facts.leases or ()))
    needed_reads = owners * scan_read_units(len(facts.leases or ())) / intervals.scan
    needed_writes = len(leases) / intervals.renewal
    short = needed_reads > reads or needed_writes > writes
    yield Finding(
        code="table-capacity",
        level=Level.YELLOW if short else Level.GREEN,
        title="lease table capacity",
        text=f"Provisioned: {reads} read and {writes} write units. {owners} workers and {len(leases)} leases need about "
        f"{needed_reads:.1f} and {needed_writes:.1f} units a second with this SDK's defaults; each checkpoint is one more write.",
        remedy="Switch the table to on-demand billing: a throttled renewal is a lost lease." if short else "",
    )


def _owner_kinds(facts: Facts) -> Counter[str]:
    """Return the number of unfinished leases by the kind of their owner."""
    reporting = {
        key
        for key, item in facts.others.items()
        if str((item.get(attributes.ENTITY_TYPE) or {}).get("S", "")) == _KCL3_ENTITY
    }
    separate = any(name.endswith("-WorkerMetricStats") for name in facts.java_tables)
    kinds: Counter[str] = Counter()
    for lease in facts.leases or ():
        if lease.owner is None or lease.is_finished:
            continue
        if lease.handoff_owner == lease.owner:
            kinds["kinesis_sdk"] += 1
        elif printable(lease.owner) in reporting or (separate and lease.throughput_kbps is not None):
            kinds["KCL 3"] += 1
        else:
            kinds["KCL 1 or 2"] += 1
    return kinds


def _writers(facts: Facts) -> Iterator[Finding]:
    if facts.leases is None:
        return
    kinds = _owner_kinds(facts)
    words = [f"{kind}: {count} leases" for kind, count in sorted(kinds.items())] or ["no lease has an owner"]
    if facts.others:
        words.append(f"KCL 3.5 or later keeps {len(facts.others)} items of its own in the table")
    if facts.java_tables:
        words.append(f"KCL 3.0 to 3.4 has the tables {', '.join(facts.java_tables)}")
    if any(lease.hash_key_range is None for lease in facts.leases):
        words.append("rows without a hash key range were written by KCL 1.x or early 2.x")
    yield Finding(code="table-writers", level=Level.NOTE, title="written by", text=f"{'; '.join(words)}.")
    if is_upgrading_from_2x(facts.others.get(MIGRATION_KEY)):
        yield Finding(
            code="migration",
            level=Level.YELLOW,
            title="KCL 2 to 3",
            text="The fleet is in the middle of its migration from KCL 2.x to 3.x.",
            remedy="Finish it, or roll it back with the KCL's migration tool; both need all workers on one version.",
        )


def _fleet(facts: Facts) -> Iterator[Finding]:
    """Judge the application by the rules of every view of a fleet (`kinesis_sdk.admin.fleet.problems`)."""
    view = _view(facts)
    for problem in view.problems:
        level = Level.RED if problem.severity is Severity.ERROR else Level.YELLOW
        if RULES[problem.code].needs_workers:
            # An application is also examined before its first start, so this is a problem only if records have piled
            # up.
            waits = (view.totals.worst_lag_millis or 0) > 1000 * _SETTINGS.behind
            level = Level.YELLOW if waits else Level.NOTE
        yield Finding(
            code=problem.code,
            level=level,
            title=problem.title,
            text=_sentence(problem.text),
            remedy=_sentence(problem.remedy),
            command=problem.command if problem.code != "table-throttled" else None,
        )
    if (
        view.leases
        and facts.shards
        and not {"no-lease", "hole"} & {problem.code for problem in view.problems}
    ):
        yield Finding(
            code="rows",
            level=Level.GREEN,
            title="rows",
            text="Every open shard has a lease, or a parent that is still being read.",
        )


def _sentence(words: str) -> str:
    first, _, rest = words.partition(" ")
    return f"{first.capitalize() if first.isalpha() and first.islower() else first} {rest}."


def _view(facts: Facts) -> FleetView:
    """Return the application as the commands for a fleet would see it after a single observation."""
    leases = facts.leases or ()
    observer = FleetObserver(facts.application, settings=_SETTINGS)
    scan = TableScan(leases=list(leases), unreadable=dict(facts.unreadable), others=dict(facts.others))
    observer.observe_table(scan, 0.0, 0.0, consistent=True)
    observer.observe_calls(
        {}, throttled=facts.table_throttles, skew=None if facts.skew is None else least_skew([facts.skew])
    )
    stream = StreamId.parse(facts.stream)
    named = {
        name for lease in leases if (name := lease.stream_name) and name.split(":")[1:2] == [stream.name]
    }
    # Of two streams with the same name, only the newer stream still exists.
    names = [None] if any(lease.stream_name is None for lease in leases) else sorted(named)[-1:]
    if facts.shards is not None and not any(is_table_shard_id(lease.shard) for lease in leases):
        observer.observe_streams(dict.fromkeys(names, stream))
        for name in names:
            observer.observe_shards(name, facts.shards, 0.0)
            hours = (facts.summary or {}).get("RetentionPeriodHours")
            if isinstance(hours, int):
                observer.observe_stream(name, StreamFacts(name=stream.name, retention=hours * 3600.0), 0.0)
    for lease in leases:
        if lease.shard in facts.lags:
            result = LagProbeResult(millis=int(facts.lags[lease.shard] * 1000))
            observer.observe_lag(lease.lease_key, result, 0.0)
    return observer.view(0.0, 0.0)


def _table_stream(facts: Facts) -> Iterator[Finding]:
    if any(is_table_shard_id(lease.shard) for lease in facts.leases or ()):
        yield Finding(
            code="table-stream",
            level=Level.YELLOW,
            title="a table's stream",
            text=f"{facts.application} reads the stream of a DynamoDB table, which is not examined: it has no shards in Kinesis to compare the "
            "leases with.",
            remedy="Look at its lag in the metrics or at /status of its workers; see docs/dynamodb-streams.md.",
        )


def _records(facts: Facts) -> Iterator[Finding]:
    for shard_id in facts.throttled[:1]:
        yield Finding(
            code="reads-throttled",
            level=Level.YELLOW,
            title="reads throttled",
            text=f"Reads of {len(facts.throttled)} sampled shards were throttled, for example of {shard_id}: "
            "five reads a second are shared by all applications that poll.",
            remedy="Poll less often, or give the applications enhanced fan-out.",
        )
    samples = [sample for sample in facts.samples if sample.records]
    if not samples:
        if facts.samples:
            yield Finding(
                code="no-records",
                level=Level.NOTE,
                title="records",
                text=f"No records in the last 10 minutes in {len(facts.samples)} of {facts.sampled_of} open shards.",
            )
        return
    yield from _distribution(facts)
    users = sum(sample.user_records for sample in samples)
    records = sum(sample.records for sample in samples)
    aggregates = sum(sample.aggregates for sample in samples)
    size = sum(sample.data_bytes for sample in samples) / records
    rate = max(sample.records_per_second for sample in samples)
    share = aggregates / records
    wasteful = share < 0.5 and size < _SMALL_RECORD and rate > SHARD_RECORDS_PER_SECOND / 10
    yield Finding(
        code="aggregation",
        level=Level.YELLOW if wasteful else Level.GREEN if aggregates else Level.NOTE,
        title="aggregation",
        text=f"{share:.0%} of {records:,} sampled Kinesis records are aggregates, {users / records:.1f} user records in each "
        f"Kinesis record on average, of {size:,.0f} bytes.",
        remedy="Aggregate on the producer: a shard accepts 1,000 records a second, and a provisioned stream bills each record "
        "as at least 25 KB."
        if wasteful
        else "",
    )
    misplaced = sum(sample.misplaced for sample in samples)
    if misplaced:
        yield Finding(
            code="aggregates-misplaced",
            level=Level.RED,
            title="misplaced aggregates",
            text=f"{misplaced} of {aggregates} aggregates hold user records whose keys belong to other shards. A KCL "
            "discards them; this SDK delivers them by default.",
            remedy="Find the producer that aggregates without checking the placement after a reshard (this SDK's and the KPL check "
            "it). On a stream with record distribution AUTO, aggregate only for consumers that keep them.",
        )
    unavailable = sorted(set().union(*(sample.unavailable for sample in samples)))
    compressed = sum(sample.compressed for sample in samples)
    if unavailable or compressed:
        yield _compression(compressed, aggregates, unavailable)
    limit = facts.summary.get("MaxRecordSizeInKiB", 1024) * 1024 if facts.summary else 1 << 20
    largest = max(sample.largest for sample in samples)
    near = largest > 0.9 * limit
    yield Finding(
        code="record-size",
        level=Level.YELLOW if near else Level.GREEN,
        title="record sizes",
        text=f"The largest sampled Kinesis record has {largest:,} of {limit:,} bytes.",
        remedy="A larger one is rejected: raise the stream's maximum record size, or split the payload."
        if near
        else "",
    )


def _compression(compressed: int, aggregates: int, unavailable: list[str]) -> Finding:
    who = (
        "Readers that do not know the codec get each of them as one record that they cannot read, and report no error: the KCL without "
        "`ZstdAggregatorUtil`, Firehose, Lambda event source mappings with libraries of others."
    )
    if unavailable:
        return Finding(
            code="aggregates-compressed",
            level=Level.RED,
            title="compressed aggregates",
            text=f"The stream has aggregates that are compressed with {', '.join(unavailable)}, which cannot be opened in this environment: a "
            f"worker in it stops at the first of them. {who}",
            remedy="Install the extra 'zstd' wherever the stream is read."
            if HOMES.keys() >= set(unavailable)
            else "Update the readers. If no producer of yours writes such records, find out who does, and let the workers skip them.",
        )
    return Finding(
        code="aggregates-compressed",
        level=Level.YELLOW,
        title="compressed aggregates",
        text=f"{compressed} of {aggregates} sampled aggregates are compressed. {who}",
        remedy="Check every reader of the stream: this SDK needs the extra 'zstd', Java the class of examples/java. See docs/compression.md.",
    )


def _distribution(facts: Facts) -> Iterator[Finding]:
    samples = facts.samples
    title = "distribution over shards"
    fullest = max(samples, key=lambda one: one.utilization)
    used = fullest.utilization
    mean = sum(sample.bytes_per_second for sample in samples) / len(samples)
    busiest = max(samples, key=lambda one: one.bytes_per_second)
    times = busiest.bytes_per_second / mean if mean else 1.0
    text = (
        f"{len(samples)} of {facts.sampled_of} open shards were sampled: {mean / 1024:,.0f} KiB/s on average; "
        f"{busiest.shard_id} has {times:.1f} times that, {fullest.shard_id} uses {used:.0%} of its write limit."
    )
    if used >= _FULL:
        level, remedy = Level.RED, "Split the shard: its writes are throttled, or are about to be."
    elif used >= _BUSY:
        level, remedy = Level.YELLOW, "Split the shard before its writes are throttled."
    elif len(samples) > 1 and times >= _UNEVEN and used >= 0.1:
        level, remedy = Level.YELLOW, "Spread the load with more partition keys, or split the busy shard."
    else:
        level, remedy = Level.GREEN, ""
    command = Command.of("split", stream=facts.stream, shard=fullest.shard_id) if used >= _BUSY else None
    yield Finding(code="distribution", level=level, title=title, text=text, remedy=remedy, command=command)
    keys: Counter[bytes] = Counter()
    for sample in samples:
        keys.update(sample.keys)
    total = sum(keys.values())
    if total < _FEW_RECORDS or facts.sampled_of < 2:
        return
    top = keys.most_common(1)[0][1] / total
    yield Finding(
        code="partition-keys",
        level=Level.YELLOW if top >= _ONE_KEY else Level.GREEN,
        title="partition keys",
        text=f"{len(keys):,} partition keys in {total:,} sampled user records; the most frequent one has {top:.0%}.",
        remedy="No split helps beyond one shard for one key: use a finer key." if top >= _ONE_KEY else "",
    )


def _retention(facts: Facts) -> Iterator[Finding]:
    hours = (facts.summary or {}).get("RetentionPeriodHours")
    if isinstance(hours, int) and facts.lags:
        shard, lag = max(facts.lags.items(), key=lambda one: one[1])
        yield Finding(
            code="retention",
            level=Level.NOTE,
            title="retention and lag",
            text=f"Of {len(facts.lags)} sampled leases, {shard} is furthest behind: the oldest record after its checkpoint is "
            f"{duration(lag)} old, and the stream keeps records for {duration(hours * 3600.0)}.",
        )


_CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _connection,
    _endpoints,
    _probes,
    _clock,
    _permissions,
    _stream,
    _limits,
    _table,
    _fleet,
    _table_stream,
    _writers,
    _retention,
    _records,
)
