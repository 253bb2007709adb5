from __future__ import annotations

import base64
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, HashKeyRange
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest, HandlerVerb
from kinesis_sdk.consumer.leases.table.lease import (
    Lease,
    ProcessedUntil,
    is_lease_item,
    lease_from_item,
    lease_to_item,
)
from kinesis_sdk.consumer.leases.table.progress import MAX_ERROR, Failing, Progress
from tests.fuzz import how_many

DATA = Path(__file__).parents[1] / "data"
GROUPS = json.loads((DATA / "kcl_leases.json").read_text())
for _items in GROUPS.values():
    for _item in _items:
        for _value in _item.values():
            if "B" in _value:  # base64 on the wire, bytes in a client
                _value["B"] = base64.b64decode(_value["B"])


BASE = {"leaseKey": {"S": "s"}, "leaseCounter": {"N": "3"}, "checkpoint": {"S": "LATEST"}}


def comparable(item):
    """Types and values; numbers by value, sets without order."""
    result = {}
    for name, value in item.items():
        ((kind, content),) = value.items()
        if kind == "N":
            content = Decimal(content)
        elif kind == "SS":
            content = frozenset(content)
        result[name] = (kind, content)
    return result


@pytest.mark.parametrize("group", GROUPS)
def test_every_item_that_java_wrote_or_accepted_round_trips(group):
    for item in GROUPS[group]:
        lease = lease_from_item(item)
        written = comparable(lease_to_item(lease))
        expected = comparable(item)
        # Fields that old rows may lack are always written by us.
        for name in ("checkpointSubSequenceNumber", "ownerSwitchesSinceCheckpoint"):
            expected.setdefault(name, ("N", Decimal(0)))
        assert written == expected
        assert lease_from_item(lease_to_item(lease)) == lease


def test_exponents_and_foreign_attributes():
    lease = lease_from_item({**BASE, "throughputKBps": {"N": "8.86E-4"}, "mine": {"M": {"a": {"N": "1"}}}})
    assert lease.throughput_kbps == 0.000886
    item = lease_to_item(lease)
    assert item["throughputKBps"] == {"N": "0.000886"}
    assert item["mine"] == {"M": {"a": {"N": "1"}}}
    assert "leaseOwner" not in item and "parentShardId" not in item


@pytest.mark.parametrize(("text", "number"), [("1E+2", 100), ("1.0E2", 100), ("24.0", 24), ("0E+3", 0)])
def test_whole_numbers_may_carry_exponents_too(text, number):
    item = {
        "leaseKey": {"S": "s"},
        "leaseCounter": {"N": text},
        "ownerSwitchesSinceCheckpoint": {"N": text},
        "checkpoint": {"S": "5"},
        "checkpointSubSequenceNumber": {"N": text},
    }
    lease = lease_from_item(item)
    assert (lease.counter, lease.owner_switches) == (number, number)
    assert lease.checkpoint == ExtendedSequenceNumber("5", number)


def test_a_pending_state_written_as_a_number_is_kept_and_not_interpreted():
    lease = lease_from_item({**BASE, "pendingCheckpointState": {"N": "5"}})
    assert lease.pending_checkpoint_state is None
    assert lease_to_item(lease)["pendingCheckpointState"] == {"N": "5"}


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"leaseKey": {"S": "s"}},
        {"leaseKey": {"S": "s"}, "leaseCounter": {"N": "1"}},
        {**BASE, "leaseCounter": {"S": "1"}},
        {**BASE, "checkpoint": {"S": "garbage"}},
        {**BASE, "leaseCounter": {"N": "1.5"}},
        {**BASE, "leaseCounter": {"N": "Infinity"}},
        {**BASE, "leaseCounter": {"N": "x"}},
        # Read without its parents, a shard would overtake them.
        {**BASE, "parentShardId": {"S": "p"}},
    ],
)
def test_what_is_no_lease_says_so(item):
    with pytest.raises(ValueError, match="not a lease item"):
        lease_from_item(item)


def test_entities_beside_leases_are_told_apart():
    assert is_lease_item({"leaseKey": {"S": "s"}})
    assert is_lease_item({"entityType": {"S": "LEASE"}})
    for kind in ("LEADER", "STREAM", "WORKER_METRIC_STATS", "CLIENT_VERSION_MIGRATION"):
        assert not is_lease_item({"entityType": {"S": kind}})


def test_an_inclusive_start_that_an_operator_wrote_is_read_as_java_reads_it():
    """It used to be read as no lease at all, and its shard was not consumed."""
    item = {**BASE, "checkpoint": {"S": "5"}, "checkpointSubSequenceNumber": {"N": "-1"}}
    lease = lease_from_item(item)
    assert lease.checkpoint == ExtendedSequenceNumber("5", -1)
    assert lease.is_started
    assert lease_to_item(lease)["checkpointSubSequenceNumber"] == {"N": "-1"}
    pending = {"pendingCheckpoint": {"S": "6"}, "pendingCheckpointSubSequenceNumber": {"N": "-1"}}
    lease = lease_from_item({**item, **pending})
    assert (lease.pending_checkpoint, lease.damaged) == (ExtendedSequenceNumber("6", -1), ())


@pytest.mark.parametrize(
    ("text", "progress"),
    [
        ("1500|1700000000000|250||a|host:7", Progress(1500, 1_700_000_000_000, 250, "a|host:7")),
        ("||||w", Progress(None, None, None, "w")),
        ("1500,60000||||w", Progress(1500, None, None, "w", delay_millis=60_000)),
        (",1||||w", Progress(None, None, None, "w", delay_millis=1)),
        ("0||0||w", Progress(0, None, 0, "w")),
        (
            "0|||3,4000,500,1,4711/5,KeyError: 'a%7Cb', 100%25|w|x",
            Progress(
                0,
                None,
                None,
                "w|x",
                Failing(3, 4000, 500, 1, ExtendedSequenceNumber("4711", 5), "KeyError: 'a|b', 100%"),
            ),
        ),
        (
            "||0|2,0,0,0,,initialize: OSError|w",
            Progress(None, None, 0, "w", Failing(2, 0, 0, 0, None, "initialize: OSError")),
        ),
    ],
)
def test_progress_round_trips_as_text(text, progress):
    lease = lease_from_item({**BASE, "progress": {"S": text}})
    assert (lease.progress, lease.damaged) == (progress, ())
    assert lease_to_item(lease)["progress"] == {"S": text}


@pytest.mark.parametrize(
    "value",
    [
        {"S": ""},
        {"S": "1|2|3||"},
        {"S": "1|2|3|w"},
        {"S": "-1|2|3||w"},
        {"S": "1.5|2|3||w"},
        {"S": "1,|2|3||w"},
        {"S": "1,2,3|2|3||w"},
        {"S": "²|2|3||w"},
        {"S": "9" * 30 + "|2|3||w"},
        {"S": "1|2|3|1,2,3,4,5/6|w"},
        {"S": "1|2|3|1,2,3,4,LATEST/6,E|w"},
        {"S": "1|2|3|1,2,3,4,5/-6,E|w"},
        {"S": "1|2|3|,2,3,4,5/6,E|w"},
        {"S": "1|2|3|" + "9" * 13 + ",2,3,4,5/6,E|w"},
        {"S": "1|2|3|1,2,3,4," + "9" * 130 + "/6,E|w"},
        {"N": "5"},
    ],
)
def test_progress_that_cannot_be_read_is_absent_and_named(value):
    lease = lease_from_item({**BASE, "progress": value})
    assert (lease.progress, lease.damaged, lease.extra) == (None, ("progress",), {})


def test_the_error_of_a_failing_handler_is_bounded_and_printable():
    failing = Failing(10**30, -5, 10**30, 10**30, None, "x\n\x1b[0m|" * 1000)
    text = Progress(1, 2, 3, "w", failing).to_text()
    assert len(text) < 3 * MAX_ERROR + 100
    read = Progress.from_text(text).failing
    assert (read.attempts, read.since_millis) == (10**12, 0)
    assert len(read.error) == MAX_ERROR
    assert read.error.isprintable()
    assert Progress.from_text("1|2|3|1,2,3,4,5/6," + "%7C" * 10**5 + "|w").failing.error == "|" * MAX_ERROR


def test_progress_counts_only_while_its_writer_holds_the_lease():
    mine = Progress(0, None, None, "me")

    def current(**owners):
        return Lease(
            lease_key="s", checkpoint=ExtendedSequenceNumber("5"), progress=mine, **owners
        ).current_progress

    assert current(owner="me") == mine
    assert current(owner="you", checkpoint_owner="me") == mine, "the old owner works until it has handed off"
    assert current(owner="you") is None
    assert current() is None


def test_marks_of_operators_are_read_and_damaged_ones_are_named():
    marks = {"drain:b|host:2": {"N": "1"}, "drain:a": {"N": "1"}, "pinnedTo": {"S": "c|host:3"}}
    lease = lease_from_item({**BASE, **marks})
    assert (lease.draining, lease.pinned_to, lease.extra) == (("a", "b|host:2"), "c|host:3", {})
    assert {name: value for name, value in lease_to_item(lease).items() if name in marks} == marks
    lease = lease_from_item({**BASE, "drain:a": {"S": "yes"}, "pinnedTo": {"N": "1"}})
    assert (lease.draining, lease.pinned_to, lease.damaged) == ((), None, ("drain:a", "pinnedTo"))


positions = st.one_of(
    st.sampled_from([AT_TIMESTAMP, TRIM_HORIZON, LATEST, SHARD_END]).map(ExtendedSequenceNumber),
    st.builds(ExtendedSequenceNumber, st.integers(0, 2**186).map(str), st.integers(-3, 10_000)),
)
names = st.text("abc-0", min_size=1, max_size=8)
ranges = st.tuples(st.integers(0, MAX_HASH_KEY), st.integers(0, MAX_HASH_KEY)).map(
    lambda pair: HashKeyRange(min(pair), max(pair))
)
leases = st.builds(
    Lease,
    lease_key=names,
    counter=st.integers(0, 2**60),
    owner=st.none() | names,
    owner_switches=st.integers(0, 1000),
    checkpoint=positions,
    pending_checkpoint=st.none() | positions,
    pending_checkpoint_state=st.none() | st.binary(min_size=1, max_size=5),
    parent_shard_ids=st.sets(names, max_size=2).map(lambda s: tuple(sorted(s))),
    child_shard_ids=st.sets(names, max_size=2).map(lambda s: tuple(sorted(s))),
    hash_key_range=st.none() | ranges,
    throughput_kbps=st.none() | st.integers(0, 10**9).map(lambda n: n / 1_000_000),
    checkpoint_owner=st.none() | names,
    initial_timestamp_millis=st.none() | st.integers(0, 2**43),
    processed_until=st.none() | st.builds(ProcessedUntil, st.integers(0, 2**43), positions),
    handoff_owner=st.none() | names,
    standby_heartbeats=st.dictionaries(names, st.integers(0, 10**6), max_size=2),
    progress=st.none()
    | st.builds(
        Progress,
        *[st.none() | st.integers(0, 2**43)] * 3,
        st.text("abc|0:", min_size=1, max_size=8),
        st.none()
        | st.builds(
            Failing,
            *[st.integers(0, 10**12)] * 4,
            st.none()
            | st.builds(ExtendedSequenceNumber, st.integers(0, 2**186).map(str), st.integers(0, 10**4)),
            st.text("aé|%,: 27C", max_size=160),
        ),
        st.just(0) | st.integers(1, 2**43),
    ),
    handler_request=st.none()
    | st.builds(
        HandlerRequest,
        st.just(HandlerVerb.RETRY),
        st.from_regex(r"[a-z0-9-]{0,63}[a-z0-9]", fullmatch=True),
        st.none(),
    )
    | st.builds(
        HandlerRequest,
        st.just(HandlerVerb.LEAVE_OUT),
        st.just("b-1"),
        st.builds(ExtendedSequenceNumber, st.integers(0, 2**186).map(str), st.integers(0, 10**12 - 1)),
    ),
    pinned_to=st.none() | names,
    draining=st.sets(names, max_size=2).map(lambda s: tuple(sorted(s))),
    extra=st.dictionaries(st.sampled_from(["x", "y"]), st.just({"S": "kept"})),
)


@pytest.mark.fuzz
@settings(max_examples=how_many(unit=40, fuzz=3000))
@given(leases)
def test_every_lease_round_trips(lease):
    assert lease_from_item(lease_to_item(lease)) == lease


@pytest.mark.parametrize(
    "text",
    [
        "",
        "retry",
        "retry,",
        "retry,a b",
        "retry,-",
        "retry,\u0661",
        f"retry,{'a' * 65}",
        "retry,a,5/0",
        "leave-out,a",
        "leave-out,a,5",
        "leave-out,a,5/-1",
        "leave-out,a,TRIM_HORIZON/0",
        "leave-out,a,5/0,6/0",
        f"leave-out,a,{'9' * 130}/0",
        "leave-out,a,5/" + "9" * 13,
        "delete,a",
    ],
)
def test_a_request_that_cannot_be_read_counts_as_none(text):
    lease = lease_from_item({**BASE, "handlerRequest": {"S": text}})
    assert (lease.handler_request, lease.damaged) == (None, ("handlerRequest",))


@pytest.mark.parametrize(
    ("marked_at", "checkpoint", "processed"),
    [
        (("5", 2), ("5", 2), True),
        (("5", 2), ("5", 3), True),
        (("5", 2), ("SHARD_END", 0), True),
        (("5", 2), ("5", 1), False),  # an operator moved it back
        (("5", 2), ("TRIM_HORIZON", 0), False),
        (("TRIM_HORIZON", 0), ("TRIM_HORIZON", 0), True),
        (("AT_TIMESTAMP", 0), ("TRIM_HORIZON", 0), False),
        (("LATEST", 0), ("5", 0), False),  # nobody knows whether the record was there then
    ],
)
def test_a_mark_holds_from_its_position_on(marked_at, checkpoint, processed):
    lease = Lease(
        lease_key="s",
        checkpoint=ExtendedSequenceNumber(*checkpoint),
        processed_until=ProcessedUntil(1000, ExtendedSequenceNumber(*marked_at)),
    )
    assert lease.was_processed_until(1000) is processed
    assert lease.was_processed_until(999) is processed
    assert not lease.was_processed_until(1001)
    assert not replace(lease, processed_until=None).was_processed_until(0)


@pytest.mark.parametrize("text", ["", "5", "5|x|0", "x|5|0", "5|5|1.5", "5|5|0|0"])
def test_a_damaged_mark_reads_as_absent(text):
    item = {**lease_to_item(Lease(lease_key="s", checkpoint=ExtendedSequenceNumber("5")))}
    item["processedUntil"] = {"S": text}
    lease = lease_from_item(item)
    assert (lease.processed_until, lease.damaged) == (None, ("processedUntil",))
