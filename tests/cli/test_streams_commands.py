from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kinesis_sdk import Producer
from kinesis_sdk.admin import Connection, Streams
from kinesis_sdk.admin.lineage import make_lineage
from kinesis_sdk.admin.load import ShardLoad
from kinesis_sdk.admin.resharding import Resharding
from kinesis_sdk.admin.transfer.run import TransferProgress
from kinesis_sdk.cli import copy as copy_module
from kinesis_sdk.cli import stream as stream_module
from kinesis_sdk.cli import tail as tail_module
from kinesis_sdk.cli.options import ConnectionOptions
from kinesis_sdk.cli.output import print_json, print_json_line
from kinesis_sdk.cli.stream_picture import (
    WIDTH,
    bytes_text,
    load_bar,
    picture,
    ring_bar,
    share_text,
    strip,
)
from kinesis_sdk.cli.transfer_report import progress_text
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, HashKeyRange
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.serialization import AvroCodec, GlueSchemaRegistry
from kinesis_sdk.testing import FakeAws, Fault, VirtualClock
from tests.cli.invoking import invoke

Run = Callable[..., Result]


@pytest.fixture
def aws() -> FakeAws:
    return FakeAws(throttle=False)


@pytest.fixture
def streams(aws: FakeAws) -> Streams:
    return Streams(Connection(clients={"kinesis": aws.client("kinesis")}))


@pytest.fixture
def run(aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on the fake."""

    def connect(account: ConnectionOptions) -> Connection:
        return Connection(
            region=account.region,
            profile=account.profile,
            endpoint_url=account.endpoint_url,
            clients={"kinesis": aws.client("kinesis"), "glue": aws.client("glue")},
        )

    monkeypatch.setattr(ConnectionOptions, "connect", connect)

    def clock_and_sleep() -> dict[str, Any]:
        clock = VirtualClock(aws.clock.time())
        return {"clock": clock, "sleep": clock.advance}

    for module in (copy_module, tail_module):
        monkeypatch.setattr(module, "clock_and_sleep", clock_and_sleep)

    def run(*arguments: str, code: int = 0, stdin: bytes | None = None) -> Result:
        return invoke(*arguments, code=code, input=stdin)

    return run


# -- stream -----------------------------------------------------------------------------------------------------


def test_a_stream_from_its_creation_to_its_end(run: Run, streams: Streams) -> None:
    made = run("stream", "create", "orders", "--shards", "2", "--tag", "team=a=b", "--retention", "48")
    assert "ACTIVE, PROVISIONED, 2 open shards" in made.stdout
    assert "48 h (2 days)" in made.stdout
    assert "team=a=b" in made.stdout
    assert run("stream", "split", "orders", "1", "--yes").stdout == "1 → 2, 3\n"
    assert run("stream", "merge", "orders", "0", "0002", "--yes").stdout == "0 + 0002 → 4\n"
    assert "4  " in run("stream", "describe", "orders").stdout
    scaled = run("stream", "scale", "orders", "4", "--yes")
    assert scaled.stdout.startswith("2 → 4 shards in")
    assert "the way" in scaled.stderr
    assert run("stream", "retention", "orders").stdout == "48 h\n"
    assert run("stream", "retention", "orders", "24", "--yes").stdout == "48 h → 24 h\n"
    assert "billing  ACTIVE" in run("stream", "consumers", "orders", "--register", "billing").stdout
    listed = json.loads(run("stream", "consumers", "orders", "--json").stdout)
    assert [one["name"] for one in listed] == ["billing"]
    assert run("stream", "list").stdout.startswith("orders  ACTIVE    PROVISIONED")
    assert "registered fan-out consumers" in run("stream", "delete", "orders", "--yes", code=3).output
    assert run("stream", "delete", "orders", "--yes", "--with-consumers").stdout == "deleted orders\n"
    assert json.loads(run("stream", "list", "--json").stdout) == []
    assert "There is no stream here" in run("stream", "list").stderr


def test_changes_are_confirmed(run: Run, streams: Streams) -> None:
    streams.create("orders", shards=2)
    for arguments in (
        ("delete", "orders"),
        ("split", "orders", "0"),
        ("merge", "orders", "0", "1"),
        ("scale", "orders", "5"),
    ):
        assert "Nothing was changed" in run("stream", *arguments, code=4, stdin=b"y\n").output
    assert len(streams.shards("orders")) == 2


def test_a_stream_is_deleted_only_if_its_name_is_typed(
    run: Run, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams.create("orders", shards=1)

    class Terminal:
        @staticmethod
        def isatty() -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal)
    answers = iter(["yes", "orders"])
    monkeypatch.setattr("click.prompt", lambda *_args, **_kwargs: next(answers))
    with pytest.raises(Exception, match="not the name"):
        stream_module._confirm_name("orders")
    stream_module._confirm_name("orders")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "x"), "shards=None"),
        (("create", "x", "--shards", "0"), "shards=0 is invalid: expected an integer from 1"),
        (("create", "x", "--shards", "1", "--tag", "novalue"), "tag='novalue'"),
        (("create", "x y", "--shards", "1"), "stream='x y'"),
        (
            ("split", "orders", "9", "--yes"),
            "shard='9' is invalid: expected a shard of the stream (open: 0, 1)",
        ),
        (("split", "orders", "0", "--at", "x", "--yes"), "at='x'"),
        (("split", "orders", "0", "--at", "0", "--yes"), "hash_key=0"),
        (("merge", "orders", "0", "0", "--yes"), "adjacent='0'"),
        (("scale", "orders", "0", "--yes"), "target=0"),
        (("retention", "orders", "9000", "--yes"), "retention_hours=9000"),
        (("watch", "orders", "--interval", "0.1s"), "interval='0.1s'"),
        (("consumers", "orders", "--register", "a", "--deregister", "b"), "register='a'"),
    ],
)
def test_wrong_arguments_name_the_field_and_the_range(
    run: Run, streams: Streams, arguments: tuple[str, ...], message: str
) -> None:
    streams.create("orders", shards=2)
    assert message in run("stream", *arguments, code=2).output


def test_a_stream_that_does_not_exist_is_a_failed_call(run: Run) -> None:
    assert "ResourceNotFoundException" in run("stream", "describe", "nowhere", code=3).output


def test_a_plan_is_shown_without_changing_anything(run: Run, streams: Streams) -> None:
    streams.create("orders", shards=4)
    plan = json.loads(run("stream", "scale", "orders", "100", "--dry-run", "--json").stdout)
    assert plan["update_shard_count"] == [7, 13, 25, 50, 100]
    assert len(streams.shards("orders")) == 4


def test_describe_as_json_has_lineage_and_load(run: Run, streams: Streams, aws: FakeAws) -> None:
    streams.create("orders", shards=2)
    for number in range(100):
        aws.client("kinesis").put_record(StreamName="orders", PartitionKey="a", Data=b"x" * number)
    data = json.loads(run("stream", "describe", "orders", "--load", "--json").stdout)
    assert data["stream"]["open_shards"] == 2
    assert [one["label"] for one in data["lineage"]["shards"]] == ["0", "1"]
    assert [round(one["records_per_second"]) for one in data["load"]] == [10, 0]
    assert "10/s" in run("stream", "describe", "orders", "--load").stdout


@pytest.mark.parametrize("options", [("--json",), ("--json", "--no-load"), (), ("--no-load",)])
def test_watch_looks_again_and_again_until_ctrl_c(
    run: Run, streams: Streams, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    streams.create("orders", shards=1)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            Resharding(streams).split("orders", "0")
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr("kinesis_sdk.cli.stream.time.sleep", sleep)
    result = run("stream", "watch", "orders", "--interval", "7s", *options, code=130)
    assert waits == [7.0, 7.0]
    if "--json" in options:
        looks = [json.loads(line) for line in result.stdout.splitlines()]
        assert [one["stream"]["open_shards"] for one in looks] == [1, 2]
        assert [one["load"] is None for one in looks] == ["--no-load" in options] * 2
    else:
        assert "split  0 → 1, 2" in result.stdout


def lines_of(*args: Any) -> list[str]:
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    Console(file=out, width=WIDTH, markup=False, highlight=False).print(picture(*args))
    return out.getvalue().splitlines()


def test_the_picture_of_some_shards(streams: Streams) -> None:
    streams.create("orders", shards=2)
    Resharding(streams).split("orders", "0")
    Resharding(streams).merge("orders", "3", "1")
    lines = lines_of(streams.lineage("orders"))
    assert [line.split() for line in lines[1:3]] == [
        ["2", "████████························", "25.0%", "1", "split", "of", "0"],
        ["4", "········████████████████████████", "75.0%", "2", "merge", "of", "3", "+", "1"],
    ]
    assert lines[-2].endswith("split  0 → 2, 3")
    assert lines[-1].endswith("merge  3 + 1 → 4")


@pytest.mark.parametrize("count", [1, 40, 41, 3000])
def test_pictures_fit_the_width_and_a_page(count: int) -> None:
    width = (MAX_HASH_KEY + 1) // count
    shards = [
        Shard(f"shardId-{index:012d}", HashKeyRange(index * width, (index + 1) * width - 1))
        for index in range(count)
    ]
    load = ShardLoad(
        shard_id=shards[-1].shard_id,
        records_per_second=123456.0,
        bytes_per_second=9e9,
        seconds=10.0,
        utilization=12.5,
    )
    for loads in (None, {}, {load.shard_id: load}):
        lines = lines_of(make_lineage(shards), loads)
        assert max(map(len, lines)) <= WIDTH
        assert len(lines) <= 45


def test_bars_and_units() -> None:
    tiny = make_lineage([Shard("shardId-000000000000", HashKeyRange(MAX_HASH_KEY, MAX_HASH_KEY))]).shards[0]
    assert ring_bar(tiny) == "·" * 31 + "█"
    assert strip([0, 1e-9, 0.5, 1]) == " ▁▄█"
    assert strip([]) == ""
    assert load_bar(7.0) == "▇" * 10
    assert load_bar(0.0) == "·" * 10
    assert [bytes_text(size) for size in (0, 1023, 1024, 150 * 1024, 5e6, 9e12)] == [
        "0 B",
        "1,023 B",
        "1.0 KiB",
        "150 KiB",
        "4.8 MiB",
        "8,382 GiB",
    ]
    assert [share_text(width) for width in (1.0, 0.25, 0.001, 1e-30)] == ["100.0%", "25.0%", "0.1%", "1e-28%"]
    progress = TransferProgress(acknowledged=1000, seconds=10.0, fraction=0.25, failed=1, skipped=2)
    assert progress_text(progress) == "1,000 acknowledged  100/s  0 B/s  1 failed  2 skipped  25%  ETA 30 s"


# -- put and tail -----------------------------------------------------------------------------------------------


def window(*more: str) -> tuple[str, ...]:
    return ("tail", "orders", "--from", "TRIM_HORIZON", "--until", "now", *more)


def test_what_is_put_can_be_read(run: Run, streams: Streams, tmp_path: Path) -> None:
    streams.create("orders", shards=2)
    path = tmp_path / "a.ndjson"
    path.write_text("".join(f'{{"id": {number}, "name": "Jörg"}}\n' for number in range(30)))
    result = run("put", "orders", str(path), "--key", "id")
    assert result.stdout.startswith("30 records acknowledged in")
    raw = run(*window("--raw"))
    assert sorted(json.loads(line)["id"] for line in raw.stdout.splitlines()) == list(range(30))
    text = run(*window("--key", "7"))
    assert '{\n  "id": 7,\n  "name": "Jörg"\n}' in text.stdout
    lines = run(*window("--json", "--grep", '"id": 1[0-4]')).stdout.splitlines()
    assert sorted(json.loads(line)["data"]["id"] for line in lines) == [10, 11, 12, 13, 14]
    assert len(run(*window("--raw", "--limit", "3")).stdout.splitlines()) == 3
    one_shard = run(*window("--json", "--shard", "0001")).stdout.splitlines()
    assert {json.loads(line)["shard_id"] for line in one_shard} == {"shardId-000000000001"}


def test_standard_input_and_failures(run: Run, streams: Streams, aws: FakeAws) -> None:
    streams.create("orders", shards=1)
    assert json.loads(run("put", "orders", "-", "--json", stdin=b"a\nb\n").stdout)["acknowledged"] == 2
    bad = run("put", "orders", "--format", "ndjson", stdin=b'{"a": 1}\nbroken\n', code=1)
    assert "1 rejected: invalid input" in bad.stdout
    assert "-, record 2: not JSON" in bad.stderr
    aws.faults.add(Fault(kind="throttle", code="AccessDeniedException", operation="PutRecords"))
    failed = run("put", "orders", stdin=b"secret\n", code=1)
    assert "AccessDenied" in failed.stderr
    assert "secret" not in failed.output
    assert "ResourceNotFound" in run("put", "nowhere", stdin=b"x\n", code=3).output


def test_hostile_records_do_not_reach_the_terminal(run: Run, streams: Streams, aws: FakeAws) -> None:
    streams.create("orders", shards=1)
    hostile = "\x1b]0;title\x07\x1b[2J\u202e\u009b31m\r"
    for data in (
        hostile.encode(),
        json.dumps({"x": hostile}, ensure_ascii=False).encode(),
        b"\xff\x1b[2J",
        b"",
    ):
        aws.client("kinesis").put_record(StreamName="orders", PartitionKey=f"k{hostile}", Data=data)
    for arguments in (window(), window("--json")):
        shown = run(*arguments).stdout
        assert all(one.isprintable() or one in "\n\t" for one in shown)
    lines = run(*window("--json")).stdout.splitlines()
    assert [json.loads(line)["encoding"] for line in lines] == ["text", "json", "hex", "empty"]
    assert json.loads(lines[1])["data"]["x"] == hostile
    assert json.loads(lines[0])["partition_key"] == f"k{hostile}"


def test_tail_prints_headers_if_asked(run: Run, streams: Streams, aws: FakeAws) -> None:
    streams.create("orders", shards=1)
    with Producer(client=aws.client("kinesis")) as producer:
        producer.put("orders", "k", b"x", headers={"traceparent": "00-ab", "bad": "\x1b[2J", "bin": b"\xff"})
    assert "traceparent" not in run(*window()).stdout
    text = run(*window("--headers")).stdout
    assert "  traceparent: 00-ab\n  bad: \\x1b[2J\n  bin;b64: /w==\n" in text
    (line,) = run(*window("--json")).stdout.splitlines()
    assert json.loads(line)["headers"] == {"traceparent": "00-ab", "bad": "\x1b[2J", "bin;b64": "/w=="}
    assert "--headers" in run(*window("--headers", "--raw"), code=2).output


@pytest.mark.parametrize("printer", [print_json, print_json_line])
def test_json_on_a_terminal_is_escaped_and_still_the_same(printer: Callable[[object], None]) -> None:
    import contextlib
    from io import StringIO

    out = StringIO()
    value = {"a": "\u202e\u009b\ud800 Jörg \U000e0001\x7f"}
    with contextlib.redirect_stdout(out):
        printer(value)
    assert json.loads(out.getvalue()) == value
    assert "Jörg" in out.getvalue()
    assert all(one.isprintable() or one == "\n" for one in out.getvalue())


def test_tail_decodes_what_names_a_schema(run: Run, streams: Streams, aws: FakeAws) -> None:
    streams.create("orders", shards=1)
    registry = GlueSchemaRegistry(client=aws.client("glue"), auto_registration=True, compression="zlib")
    day = {"type": "int", "logicalType": "date"}
    fields = [
        {"name": "id", "type": "string"},
        {"name": "day", "type": day},
        {"name": "raw", "type": "bytes"},
    ]
    codec = AvroCodec({"type": "record", "name": "Order", "fields": fields})
    value = {"id": "seven", "day": date(2026, 11, 22), "raw": b"\x01\xff"}
    good = registry.serializer(codec).serialize("orders", value)
    plain = b'{"id": "plain"}'
    for data in (good, good[:-1], good[:-1], plain):
        aws.client("kinesis").put_record(StreamName="orders", PartitionKey="k", Data=data)
    result = run(*window("--json", "--schema-registry"))
    shown = [json.loads(line)["data"] for line in result.stdout.splitlines()]
    assert shown[0] == {"id": "seven", "day": "2026-11-22", "raw": "01ff"}
    assert shown[1] == shown[2] == good[:-1].hex()
    assert shown[3] == {"id": "plain"}
    assert result.stderr.count("is shown as it is: the compressed payload is damaged") == 1
    assert len(run(*window("--json", "--schema-registry", "--grep", "seven")).stdout.splitlines()) == 1
    assert run(*window("--json", "--grep", "seven")).stdout == ""


def test_wrong_arguments_of_tail(run: Run, streams: Streams) -> None:
    streams.create("orders", shards=1)
    assert "grep='('" in run(*window("--grep", "("), code=2).output
    assert "raw=True" in run(*window("--raw", "--json"), code=2).output
    assert "shard='7'" in run(*window("--shard", "7"), code=2).output
    assert "or -15m" in run("tail", "orders", "--from", "yesterday", code=2).output
    assert "a time that has passed" in run("tail", "orders", "--from", "2099-01-01T00:00:00Z", code=2).output


# -- copy -------------------------------------------------------------------------------------------------------


def test_copy(run: Run, streams: Streams, tmp_path: Path) -> None:
    streams.create("orders", shards=1)
    streams.create("replay", shards=2)
    run("put", "orders", "--format", "ndjson", "--key", "k", stdin=b'{"k": 1}\n{"k": 2}\n')
    state = str(tmp_path / "state")
    result = json.loads(run("copy", "orders", "replay", "--state", state, "--json").stdout)
    assert result["transfer"]["acknowledged"] == 2
    assert result["start"] == "TRIM_HORIZON"
    again = run("copy", "orders", "replay", "--state", state)
    assert again.stdout.startswith("0 records acknowledged")
    assert "continuing the copy from TRIM_HORIZON" in again.stderr
    assert "never end" in run("copy", "orders", "orders", "--follow", code=2).output
    assert "source='orders'" in run("copy", "orders", "orders", code=2).output
    assert "state=" in run("copy", "replay", "orders", "--state", state, code=2).output
