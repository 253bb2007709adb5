"""A trace from end to end: producer → worker → producer → Spark, in an exporter in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kinesis_sdk import ConsumerConfig, InMemoryLeaseStore, Producer, RecordBatch, Worker
from kinesis_sdk.tracing import BatchTracing, ConsumerTracing, ProducerTracing, Tracing


def id_of(span: Any) -> int:
    return int(span.context.span_id)


def test_a_trace_leads_over_two_streams_into_a_batch_of_spark(
    spark: Any, stream: Any, tmp_path: Path
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(tracer_provider=provider)
    orders, bills = stream(1), stream(1)
    place: dict[str, Any] = {"region_name": "us-east-1", "endpoint_url": orders.endpoint.url}
    with Producer(interceptors=[ProducerTracing(tracing)], **place) as producer:
        accepted = [producer.put(orders.name, "k", b"%d" % number) for number in range(3)]
        for record in accepted:
            record.result(60)

        def bill(batch: RecordBatch) -> None:
            for record in batch.records:
                producer.put(bills.name, record.partition_key, record.data).result(60)

        Worker(
            orders.name,
            application_name="billing",
            handler=bill,
            config=ConsumerConfig(initial_position="TRIM_HORIZON"),
            lease_store=InMemoryLeaseStore(),
            interceptors=[ConsumerTracing(tracing, application_name="billing")],
            until="now",
            **place,
        ).run()
    seen: list[bytes] = []

    def collect(frame: Any, _batch_id: int) -> None:
        seen.extend(bytes(row.data) for row in frame.select("data").collect())

    options = bills.reader_options(includeHeaders="true", columns="data, headers")
    frame = spark.readStream.format("kinesis_sdk").options(**options).load()
    query = (
        frame.writeStream.foreachBatch(BatchTracing(tracing, stream=bills.name)(collect))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert sorted(seen) == [b"0", b"1", b"2"]

    def named(name: str) -> list[ReadableSpan]:
        return [span for span in exporter.get_finished_spans() if span.name == name]

    def linked(*spans: ReadableSpan) -> set[int]:
        return {id_of(link) for span in spans for link in span.links}

    for name in (orders.name, bills.name):
        created = {id_of(span) for span in named(f"create {name}")}
        assert len(created) == 3
        for operation in ("send", "process"):
            assert linked(*named(f"{operation} {name}")) == created, (operation, name)
    processed = {id_of(span) for span in named(f"process {orders.name}")}
    assert {span.parent.span_id for span in named(f"create {bills.name}") if span.parent} == processed
    assert linked(*named(f"receive {orders.name}")) == linked(*named(f"process {orders.name}"))
    assert named(f"settle {orders.name}")
