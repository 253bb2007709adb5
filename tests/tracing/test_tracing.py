"""Spans of producers, workers and Lambda functions, and the contexts that travel in headers."""

from __future__ import annotations

import asyncio
import sys
from base64 import b64encode
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk.trace", reason="the extra 'opentelemetry' is not installed")

from opentelemetry import trace
from opentelemetry.baggage import set_baggage
from opentelemetry.context import attach, detach
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kinesis_sdk import ConfigError, ConsumerConfig, RecordBatch, StreamId, UserRecord
from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.headers import encode_headers
from kinesis_sdk.common.interceptors import OneRecord
from kinesis_sdk.lambda_events import kinesis_handler
from kinesis_sdk.producer import AsyncProducer, Producer, ProducerConfig
from kinesis_sdk.pytest_plugin import SteppedWorker, TestStream
from kinesis_sdk.testing import FakeAws, Fault, VirtualClock
from kinesis_sdk.tracing import BatchTracing, ConsumerTracing, ProducerTracing, Tracing
from tests.lambda_events.support import SHARD, event
from tests.producer.support import LONG

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID, SPAN_ID = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331


class Traces:
    """A tracer provider and a meter provider that keep what ended."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def shared(self, **settings: Any) -> Tracing:
        return Tracing(tracer_provider=self.provider, meter_provider=self.meters, **settings)

    def points(self, *names: str) -> list[Any]:
        every = self.reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics  # type: ignore[union-attr]
        return [one for one in every if not names or one.name in names]

    def metrics(self) -> dict[tuple[str, str], Any]:
        """Return the data points by names of metric and operation, if all points of an operation have equal attributes."""
        found = {}
        for one in self.points():
            for point in one.data.data_points:
                found[one.name, str(point.attributes["messaging.operation.name"])] = point  # type: ignore[index]
        return found

    def producer(
        self, stream: TestStream, kind: Any = Producer, propagator: Any = None, **settings: Any
    ) -> Any:
        tracing = ProducerTracing(self.shared(propagator=propagator), **settings)
        config = ProducerConfig(record_max_buffered_time=0.005, aggregation_enabled=False)
        return kind(config, client=stream.client, interceptors=[tracing])

    def consume(
        self,
        stream: TestStream,
        handler: Any,
        policy: Any = "retry",
        propagator: Any = None,
        batch_records: int = 1_000,
        **settings: Any,
    ) -> None:
        tracing = ConsumerTracing(self.shared(propagator=propagator), **settings)
        config = ConsumerConfig(
            initial_position="TRIM_HORIZON", on_handler_error=policy, batch_records=batch_records
        )
        SteppedWorker(stream, handler, config, interceptors=[tracing]).run()

    def links_of(self, *each: Mapping[str, bytes], **settings: Any) -> tuple[Any, ...]:
        """Return the links of the span of a batch whose records have these headers."""
        tracing = ConsumerTracing(self.shared(**settings))
        records = [UserRecord(b"x", "k", str(number), headers=one) for number, one in enumerate(each)]
        with tracing.on_batch(OneRecord(records, StreamId("orders"), "shard-0")):
            pass
        return tuple(self.named("process orders")[-1].links)


@pytest.fixture
def traces() -> Traces:
    return Traces()


@pytest.fixture
def stream() -> TestStream:
    return TestStream(FakeAws(clock=VirtualClock(), throttle=False), "orders")


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes, without what all spans of a stream have in common."""
    found = dict(span.attributes or {})
    operation, _, stream = span.name.partition(" ")
    assert found.pop("messaging.system") == "aws_kinesis"
    assert found.pop("messaging.operation.name") == found.pop("messaging.operation.type") == operation
    assert found.pop("messaging.destination.name") == found.pop("aws.kinesis.stream_name") == stream
    return found


def id_of(span: Any) -> int:
    return int(span.context.span_id)


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def linked(span: ReadableSpan) -> set[int]:
    return {id_of(link) for link in span.links}


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_trace_leads_from_producer_to_worker_to_producer(
    traces: Traces, stream: TestStream, kind: str
) -> None:
    bills = TestStream(stream.aws, "bills")
    with traces.producer(stream) as producer:
        with traces.tracer.start_as_current_span("checkout") as checkout:
            accepted = producer.put_many("orders", [("secret-key", b"secret-0"), ("secret-key", b"secret-1")])
        assert all(record.result(LONG) for record in accepted)

        def bill(batch: RecordBatch) -> None:
            for record in batch.records:
                producer.put("bills", record.partition_key, record.data).result(LONG)

        async def coroutine(batch: RecordBatch) -> None:
            bill(batch)

        traces.consume(stream, bill if kind == "function" else coroutine, application_name="billing")
    created, sent, process = (
        traces.named("create orders"),
        traces.named("send orders"),
        traces.one("process orders"),
    )
    assert [span.kind for span in (created[0], sent[0], process)] == [
        SpanKind.PRODUCER,
        SpanKind.CLIENT,
        SpanKind.CONSUMER,
    ]
    ids = {id_of(span) for span in created}
    assert len(ids) == 2
    assert {parent_of(span) for span in created} == {id_of(checkout)}
    assert [attributes(span) for span in created] == [{}, {}]
    assert set.union(*map(linked, sent)) == linked(process) == ids
    assert {parent_of(span) for span in (*sent, process)} == {None}
    assert sum(span.attributes["messaging.batch.message_count"] for span in sent) == 2  # type: ignore[index,misc]
    assert attributes(process) == {
        "messaging.batch.message_count": 2,
        "messaging.consumer.group.name": "billing",
        "messaging.destination.partition.id": "shardId-000000000000",
    }
    assert {parent_of(span) for span in traces.named("create bills")} == {id_of(process)}
    assert {record.headers["traceparent"].decode().split("-")[1] for record in bills.records} == {
        f"{process.context.trace_id:032x}"  # type: ignore[union-attr]
    }
    assert not trace.get_current_span().get_span_context().is_valid
    everything = "".join(span.to_json() for span in traces.exporter.get_finished_spans())
    assert "secret" not in everything


def test_a_response_is_received_once_and_a_checkpoint_is_settled(traces: Traces, stream: TestStream) -> None:
    with traces.producer(stream) as producer:
        producer.put_many("orders", [("k", b"%d" % number) for number in range(5)])
    traces.consume(stream, lambda batch: None, batch_records=2, application_name="billing")
    assert len(traces.named("process orders")) == 3
    received = traces.one("receive orders")
    shard = {
        "messaging.destination.partition.id": "shardId-000000000000",
        "messaging.consumer.group.name": "billing",
    }
    assert attributes(received) == shard
    assert (received.kind, parent_of(received)) == (SpanKind.CLIENT, None)
    assert linked(received) == linked(traces.named("process orders")[0])
    assert received.start_time <= received.end_time <= traces.named("process orders")[0].start_time  # type: ignore[operator]
    settled = traces.named("settle orders")
    assert {span.kind for span in settled} == {SpanKind.CLIENT}
    last = stream.records[-1]
    assert attributes(settled[-1]) == {**shard, "kinesis_sdk.position": f"{last.sequence_number}/0"}


def test_operations_have_the_metrics_of_the_conventions(traces: Traces, stream: TestStream) -> None:
    with traces.producer(stream) as producer:
        producer.put_many("orders", [("k", b"0"), ("k", b"1")])
    traces.consume(stream, lambda batch: None, application_name="billing")
    found = traces.metrics()
    clients, process = "messaging.client", "messaging.process"
    assert set(found) == {
        (f"{clients}.operation.duration", "send"),
        (f"{clients}.operation.duration", "receive"),
        (f"{clients}.operation.duration", "settle"),
        (f"{process}.duration", "process"),
        (f"{clients}.sent.messages", "send"),
        (f"{clients}.consumed.messages", "process"),
    }
    assert found[f"{clients}.sent.messages", "send"].value == 2
    assert found[f"{clients}.consumed.messages", "process"].value == 2
    assert dict(found[f"{process}.duration", "process"].attributes) == {
        "messaging.system": "aws_kinesis",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "shardId-000000000000",
        "messaging.consumer.group.name": "billing",
    }


class Frame:
    """What the decorator needs of a frame of Spark: a column of maps, selected, made distinct and collected."""

    columns = ("data", "headers")

    def __init__(self, rows: list[dict[str, bytes]]) -> None:
        self.rows = rows

    def __getitem__(self, name: str) -> Any:
        if name not in self.columns:
            raise KeyError(name)
        return {
            one: SimpleNamespace(alias=lambda _, one=one: one)
            for one in ("baggage", "traceparent", "tracestate")
        }

    def select(self, *names: str) -> Frame:
        found = Frame([])
        found.rows = [tuple(row.get(name) for name in names) for row in self.rows]  # type: ignore[misc]
        return found

    def distinct(self) -> Frame:
        return Frame(list(dict.fromkeys(self.rows)))  # type: ignore[arg-type]

    def limit(self, number: int) -> Frame:
        return Frame(self.rows[:number])

    def collect(self) -> list[Any]:
        return self.rows


def test_a_batch_of_spark_links_to_the_contexts_of_its_rows(traces: Traces) -> None:
    seen: list[Any] = []

    @BatchTracing(traces.shared(max_links=1), stream="orders", application_name="weeks")
    def function(frame: Any, batch_id: int) -> str:
        seen.append((frame, batch_id, trace.get_current_span().get_span_context().span_id))
        return "done"

    frame = Frame([{}, {"traceparent": TRACEPARENT.encode()}, {"traceparent": TRACEPARENT.encode()}])
    assert function(frame, 7) == "done"
    span = traces.one("process orders")
    assert seen == [(frame, 7, id_of(span))]
    assert linked(span) == {SPAN_ID}
    assert attributes(span) == {"messaging.consumer.group.name": "weeks", "kinesis_sdk.batch_id": 7}


def test_a_batch_without_headers_or_with_broken_ones_is_processed(
    traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    function = BatchTracing(traces.shared(), stream="orders")(lambda frame, batch_id: batch_id)
    frame = Frame([{"traceparent": b"\xff"}])
    assert function(frame, 1) == 1
    frame.limit = None  # type: ignore[method-assign, assignment]
    frame.select = None  # type: ignore[method-assign, assignment]
    assert function(frame, 2) == 2
    assert "tracing failed" in caplog.text
    frame.columns = ("data",)
    assert function(frame, 3) == 3
    assert [linked(span) for span in traces.named("process orders")] == [set(), set(), set()]


def test_an_async_producer_takes_the_span_of_the_task(traces: Traces, stream: TestStream) -> None:
    async def run() -> None:
        async with traces.producer(stream, AsyncProducer, partition_keys=True) as producer:

            async def task(name: str) -> None:
                with traces.tracer.start_as_current_span(name):
                    await asyncio.sleep(0)
                    await (await producer.put("orders", name, b"x"))

            await asyncio.gather(task("a"), task("b"))

    asyncio.run(run())
    parents: dict[int | None, str] = {id_of(traces.one(name)): name for name in ("a", "b")}
    found = {
        attributes(span)["kinesis_sdk.partition_key"]: parents[parent_of(span)]
        for span in traces.named("create orders")
    }
    assert found == {"a": "a", "b": "b"}


def test_a_lambda_function_has_a_span_for_each_record(traces: Traces) -> None:
    aggregate = Aggregate(10_000, 10)
    for headers in ({"traceparent": TRACEPARENT}, {}):
        assert aggregate.try_append("k", None, b"x", hash_partition_key("k"), headers=encode_headers(headers))
    given = event(["a"])
    given["Records"][0]["kinesis"]["data"] = b64encode(aggregate.encode()).decode()
    seen: list[int] = []
    handler = kinesis_handler(interceptors=[ConsumerTracing(traces.shared())])(
        lambda record: seen.append(trace.get_current_span().get_span_context().span_id)
    )
    with traces.tracer.start_as_current_span("invocation") as invocation:
        handler(given, None)
    spans = [span for span in traces.exporter.get_finished_spans() if span.name.startswith("process ")]
    assert seen == [id_of(span) for span in spans]
    assert {parent_of(span) for span in spans} == {id_of(invocation)}
    assert [linked(span) for span in spans] == [{SPAN_ID}, set()]
    stream = spans[0].name.removeprefix("process ")
    assert [attributes(span) for span in spans] == [
        {
            "messaging.destination.partition.id": SHARD,
            "messaging.message.id": f"{stream}/{SHARD}/100/{number}",
        }
        for number in range(2)
    ]


def test_without_create_spans_the_caller_is_the_creation_context(traces: Traces, stream: TestStream) -> None:
    with traces.producer(stream, create_spans=False) as producer:
        with traces.tracer.start_as_current_span("checkout") as checkout:
            producer.put_many("orders", [("k", b"0"), ("k", b"1")])
        producer.put("orders", "k", b"2")
    assert traces.named("create orders") == []
    assert set.union(*map(linked, traces.named("send orders"))) == {id_of(checkout)}
    assert sorted(len(record.headers) for record in stream.records) == [0, 1, 1]


def test_a_creation_context_of_the_caller_is_kept(traces: Traces, stream: TestStream) -> None:
    with traces.producer(stream) as producer:
        producer.put("orders", "k", b"0", headers={"traceparent": TRACEPARENT, "own": "1"})
        producer.put("orders", "k", b"1", headers={"traceparent": b"\xff"})
    (created,) = traces.named("create orders")
    assert set.union(*map(linked, traces.named("send orders"))) == {SPAN_ID, id_of(created)}
    kept, repaired = (record.headers for record in sorted(stream.records))
    assert kept == {"traceparent": TRACEPARENT.encode(), "own": b"1"}
    assert f"{id_of(created):016x}".encode() in repaired["traceparent"]


def test_streams_without_headers_and_full_headers(
    traces: Traces, stream: TestStream, caplog: pytest.LogCaptureFixture
) -> None:
    plain = TestStream(stream.aws, "plain")
    with traces.producer(stream, without_headers=["plain"]) as producer:
        producer.put("plain", "k", b"x")
        full = {f"name-{number}": "value" for number in range(64)}
        producer.put("orders", "k", b"x", headers=full)
        token = attach(set_baggage("a", "v" * 3_800, set_baggage("b", "v" * 3_800)))
        producer.put("orders", "k", b"y", headers={"own": "v" * 1_000})
        detach(token)
    assert [record.headers for record in plain.records] == [{}]
    assert [len(record.headers) for record in sorted(stream.records)] == [64, 1]
    assert "tracing failed" in caplog.text
    assert "vvv" not in caplog.text
    assert len(traces.named("create plain")) == 1


def test_the_configured_propagator_reads_and_writes(traces: Traces, stream: TestStream) -> None:
    class Own(TextMapPropagator):
        fields = {"own-trace"}  # noqa: RUF012

        def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
            span = trace.get_current_span(context).get_span_context()
            carrier["own-trace"] = f"{span.trace_id}:{span.span_id}"

        def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Any:
            numbers = map(int, getter.get(carrier, "own-trace")[0].split(":"))
            found = trace.SpanContext(*numbers, is_remote=True)
            return trace.set_span_in_context(trace.NonRecordingSpan(found), context)

    with traces.producer(stream, propagator=Own()) as producer:
        producer.put("orders", "k", b"x")
    traces.consume(stream, lambda batch: None, propagator=Own())
    assert linked(traces.one("process orders")) == {id_of(traces.one("create orders"))}
    assert [set(record.headers) for record in stream.records] == [{"own-trace"}]


def test_a_failing_handler_marks_its_span_and_shows_nothing(traces: Traces, stream: TestStream) -> None:
    left = [1]

    def fail(batch: RecordBatch) -> None:
        if left[0]:
            left[0] -= 1
            raise LookupError(batch.records[0].data)

    stream.put("k", b"secret")
    traces.consume(stream, fail)
    first, second = traces.named("process orders")
    assert (first.status.status_code, attributes(first)["error.type"]) == (StatusCode.ERROR, "LookupError")
    assert second.status.status_code is StatusCode.UNSET
    assert "error.type" not in attributes(second)
    assert attributes(first)["messaging.message.id"] == attributes(second)["messaging.message.id"]
    assert "secret" not in first.to_json()
    assert first.events == ()


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (
            Fault(kind="error", operation="PutRecords", code="AccessDeniedException", status=400, count=1),
            {"error.type": "kinesis_sdk.common.errors.PermanentAwsError"},
        ),
        (
            Fault(kind="partial", operation="PutRecords", count=1, probability=1.0),
            {"error.type": "rejected", "kinesis_sdk.rejected": 1},
        ),
    ],
)
def test_a_failing_request_marks_its_span(
    traces: Traces, stream: TestStream, fault: Fault, found: dict[str, Any]
) -> None:
    stream.aws.faults.add(fault)
    with traces.producer(stream) as producer:
        producer.put("orders", "k", b"x").exception(LONG)
    first, *others = traces.named("send orders")
    assert attributes(first) == {
        "messaging.batch.message_count": 1,
        "kinesis_sdk.kinesis_records": 1,
        **found,
    }
    assert first.status.status_code is StatusCode.ERROR
    errors = {
        point.attributes.get("error.type")
        for metric in traces.points("messaging.client.sent.messages")
        for point in metric.data.data_points
    }
    assert found["error.type"] in errors
    assert {span.status.status_code for span in others} <= {StatusCode.UNSET}
    created = id_of(traces.one("create orders"))
    assert [linked(span) for span in (first, *others)] == [{created}] * (1 + len(others))


@pytest.mark.parametrize(
    "headers",
    [
        {"traceparent": b""},
        {"traceparent": b"\xff\xfe"},
        {"traceparent": b"00-zz"},
        {"traceparent": b"ff" + TRACEPARENT[2:].encode()},
        {"traceparent": b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"},
        {"traceparent": TRACEPARENT.encode() + b"-" + b"x" * 9_000},
        {"Traceparent": TRACEPARENT.encode()},
        {"tracestate": b"a=b", "baggage": b"%ff=%ff;" * 1_000},
    ],
)
def test_what_is_no_context_has_no_link(traces: Traces, headers: dict[str, bytes]) -> None:
    assert traces.links_of(headers) == ()


def test_a_large_tracestate_is_cut(traces: Traces) -> None:
    states = [b",".join(b"k%d=v" % n for n in range(500)), b"k=" + b"v" * 100_000, b"\xff", b"=,,==;"]
    for state in states:
        (link,) = traces.links_of({"traceparent": TRACEPARENT.encode(), "tracestate": state})
        assert (link.context.trace_id, link.context.span_id) == (TRACE_ID, SPAN_ID)
        assert len(link.context.trace_state.to_header()) <= 512


class Counting(TraceContextTextMapPropagator):
    """Counts what it is asked to read."""

    reads = 0

    def extract(self, *arguments: Any, **more: Any) -> Any:
        self.reads += 1
        return super().extract(*arguments, **more)


def test_what_is_read_is_bounded(traces: Traces) -> None:
    counting = Counting()
    many = [{"traceparent": f"00-{number:032x}-{number:016x}-01".encode()} for number in range(1, 50)]
    same = [dict(many[0]) for _ in range(50)]
    wrong = [{"traceparent": b"wrong %d" % number} for number in range(50)]
    assert len(traces.links_of(*same, *many, propagator=counting, max_links=10)) == 10
    assert counting.reads == 10
    assert traces.links_of(*wrong, *many, propagator=counting, max_links=10) == ()
    assert counting.reads == 20
    assert len(traces.links_of(*[{"other": b"1"}, {}] * 50, many[0], propagator=counting)) == 1
    assert len(traces.links_of({}, {"other": b"1"}, many[0], max_links=1)) == 1
    assert traces.links_of(many[0], max_links=0) == ()


class Noting(TraceContextTextMapPropagator):
    """Notes the values that it is given."""

    def __init__(self) -> None:
        self.given: list[int | None] = []

    def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Any:
        values = getter.get(carrier, "traceparent")
        self.given.append(None if values is None else len(values[0]))
        assert getter.keys(carrier) == ["traceparent"]
        return super().extract(carrier, context, getter)


def test_a_propagator_is_given_no_more_than_a_record_may_have(traces: Traces) -> None:
    noting = Noting()
    values = [b"x" * 8_192, b"x" * 8_193, b"x" * 1_000_000, b"\xff"]
    assert traces.links_of(*({"traceparent": value} for value in values), propagator=noting) == ()
    assert noting.given == [8_192, None, None, None]


class Broken(TextMapPropagator):
    fields = {"traceparent"}  # noqa: RUF012

    def inject(self, *_arguments: Any, **_more: Any) -> None:
        raise RuntimeError("inject")

    def extract(self, carrier: Any, *_arguments: Any, **_more: Any) -> Any:
        raise RuntimeError(carrier["traceparent"])


class BrokenProcessor(SpanProcessor):
    def __init__(self, method: str) -> None:
        setattr(self, method, self.fail)

    def fail(self, *_arguments: Any, **_more: Any) -> None:
        raise RuntimeError("processor")


@pytest.mark.parametrize("broken", ["propagator", "on_start", "on_end"])
def test_what_fails_in_tracing_fails_no_record(
    traces: Traces, stream: TestStream, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"propagator": Broken()} if broken == "propagator" else {}
    if not settings:
        traces.provider.add_span_processor(BrokenProcessor(broken))
    seen: list[bytes] = []
    with traces.producer(stream, **settings) as producer:
        producer.put("orders", "k", b"0").result(LONG)
        producer.put("orders", "k", b"1", headers={"traceparent": "secret"}).result(LONG)
    traces.consume(stream, lambda batch: seen.extend(record.data for record in batch.records), **settings)
    assert sorted(seen) == [b"0", b"1"], "each once"
    assert "tracing failed (1" in caplog.text
    if settings:
        assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


def test_a_request_begins_a_trace_whatever_its_thread_inherits(traces: Traces) -> None:
    tracing = ProducerTracing(traces.shared())
    request: Any = SimpleNamespace(stream=StreamId("orders"), records=[], kinesis_records=0, rejected=0)
    with traces.tracer.start_as_current_span("startup"), tracing.on_request(request):
        pass
    assert traces.one("send orders").parent is None


def test_without_an_sdk_nothing_is_written(stream: TestStream) -> None:
    tracing = ProducerTracing(Tracing(tracer_provider=trace.NoOpTracerProvider()))
    with Producer(client=stream.client, interceptors=[tracing]) as producer:
        producer.put("orders", "k", b"x")
    (record,) = stream.records
    assert (record.headers, record.aggregated) == ({}, False)


def test_streams_of_tables_and_empty_batches(traces: Traces) -> None:
    arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000"
    tracing = ConsumerTracing(traces.shared())
    table = StreamId.of_table_stream(arn)
    assert table is not None
    for records in ([], [UserRecord(b"x", "k", "1")]):
        with tracing.on_batch(OneRecord(records, table, "shard-0")):
            pass
    found = traces.one("process orders").attributes
    assert found is not None
    assert found["messaging.system"] == "aws_dynamodb_streams"
    assert "aws.kinesis.stream_name" not in found


class B3(Broken):
    fields = {"b3"}  # noqa: RUF012


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("propagator", lambda: Tracing(propagator=B3())),
        ("propagator", lambda: Tracing(propagator="tracecontext")),  # type: ignore[arg-type]
        ("tracer_provider", lambda: Tracing(tracer_provider=trace.get_tracer("x"))),  # type: ignore[arg-type]
        ("meter_provider", lambda: Tracing(meter_provider="global")),  # type: ignore[arg-type]
        ("max_links", lambda: Tracing(max_links=10_001)),
        ("tracing", lambda: ProducerTracing(trace.get_tracer_provider())),  # type: ignore[arg-type]
        ("application_name", lambda: BatchTracing(stream="orders", application_name="")),
        ("stream", lambda: BatchTracing(stream="a b")),
        ("application_name", lambda: ConsumerTracing(application_name="")),
        ("create_spans", lambda: ProducerTracing(create_spans="no")),  # type: ignore[arg-type]
        ("partition_keys", lambda: ProducerTracing(partition_keys=1)),  # type: ignore[arg-type]
        ("without_headers", lambda: ProducerTracing(without_headers="orders")),
        ("stream", lambda: ProducerTracing(without_headers=["a b"])),
    ],
)
def test_arguments_are_checked(name: str, make: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name}="):
        make()


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "kinesis_sdk.tracing.spans")
    with pytest.raises(ImportError, match=r"'\.\[opentelemetry\]'"):
        __import__("kinesis_sdk.tracing.spans")
