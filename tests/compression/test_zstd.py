"""Zstandard: what is sealed is read again, and a forged frame costs no more than it declares."""

from __future__ import annotations

import contextlib
import random
import struct
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_sdk.common import catalogue
from kinesis_sdk.common import codec as codecs
from kinesis_sdk.common.aggregate_reader import deaggregate, decode
from kinesis_sdk.common.codec import CODEC_KEY, MAX_INNER_SIZE, MAX_RATIO, codec_named
from kinesis_sdk.common.errors import BufferFullError, CodecUnavailableError, ConfigError
from kinesis_sdk.common.headers import NO_HEADERS
from kinesis_sdk.compression import zstd
from kinesis_sdk.compression.zstd import ZstdCodec
from kinesis_sdk.metrics import MemoryMetrics
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.producer.records.record import cost_of
from kinesis_sdk.testing import FakeAws
from tests.common.reference import Item, filled
from tests.common.tagged import forged
from tests.producer.simulation import STREAM, read_stream
from tests.producer.support import LONG, Gate

ITEMS: list[Item] = [(f"k{number % 7}", None, b'{"number": %d}' % number) for number in range(500)]


@pytest.fixture(scope="module")
def codec() -> ZstdCodec:
    return ZstdCodec()


def test_an_aggregate_is_read_again(codec: ZstdCodec) -> None:
    plain = filled(ITEMS)
    sealed = plain.seal_with(codec)
    assert sealed.size * 3 < plain.size
    assert decode(sealed.encode()) == ITEMS


@pytest.mark.parametrize("size", [1, 255, 256, 100_000, 8 * 1024 * 1024])
def test_what_becomes_very_small_is_padded_to_the_least_size(codec: ZstdCodec, size: int) -> None:
    sealed = codec.seal(bytes(size))
    assert len(sealed) * MAX_RATIO >= size
    assert len(sealed) <= size // MAX_RATIO + 40
    assert codec.unseal(sealed, size) == bytes(size)


def frame(declared: int, content: bytes = bytes(1_000)) -> bytes:
    """A frame with one block that repeats a byte, and a header that says what it likes."""
    block = struct.pack("<I", 1 | 1 << 1 | len(content) << 3)[:3] + b"\0"
    return b"\x28\xb5\x2f\xfd" + b"\xe0" + struct.pack("<Q", declared) + block


@pytest.mark.parametrize("declared", [999, 1_001, 0, 1 << 30, 1 << 62])
def test_a_frame_that_declares_another_size_is_refused_before_it_is_opened(
    codec: ZstdCodec, declared: int
) -> None:
    assert codec.unseal(frame(1_000), 1_000) == bytes(1_000)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError):
            codec.unseal(frame(declared), 1_000)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_frame_that_holds_another_size_than_it_declares_is_refused(codec: ZstdCodec) -> None:
    for declared in (900, 1_100):
        with pytest.raises(ValueError):
            codec.unseal(frame(declared), declared)


def test_damaged_frames_are_refused_and_never_opened_wrongly(codec: ZstdCodec) -> None:
    rng, body = random.Random(5), filled(ITEMS).body
    sealed = codec.seal(body)
    for _ in range(200):
        damaged = bytearray(sealed)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        with contextlib.suppress(ValueError):
            assert len(codec.unseal(bytes(damaged), len(body))) == len(body)
    for length in range(0, len(sealed), 97):
        with pytest.raises(ValueError):
            codec.unseal(sealed[:length], len(body))


def test_the_largest_body_is_opened_and_nothing_larger(codec: ZstdCodec) -> None:
    body = bytes(MAX_INNER_SIZE)
    assert len(codec.unseal(codec.seal(body), len(body))) == len(body)
    sealed = codec.seal(body + b"0")
    assert decode(forged(sealed, (CODEC_KEY, f"zstd;{MAX_INNER_SIZE + 1};1"))) == [("k", None, sealed)]


def test_threads_share_a_codec(codec: ZstdCodec) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        body = filled(ITEMS[number:]).body
        wrong.extend(number for _ in range(20) if codec.unseal(codec.seal(body), len(body)) != body)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_calls_one_after_another_share_one_compressor(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[zstd.Library] = []
    real = zstd.library
    monkeypatch.setattr(zstd, "library", lambda: made.append(real()) or made[-1])
    codec, body = ZstdCodec(), filled(ITEMS).body
    for _ in range(3):
        thread = threading.Thread(target=lambda: codec.unseal(codec.seal(body), len(body)))
        thread.start()
        thread.join()
    with pytest.raises(ValueError):
        codec.unseal(b"damaged", 1)
    codec.seal(body)
    assert len(made) == 1


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "_made", {})
    for name in ("compression", "compression.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("without_library")
def test_without_the_library_producer_and_reader_name_the_extra() -> None:
    with pytest.raises(CodecUnavailableError, match="extra 'zstd'"):
        Producer(ProducerConfig(compression="zstd"), client=FakeAws().client("kinesis"))
    with pytest.raises(CodecUnavailableError, match="extra 'zstd'"):
        codec_named("zstd")


def test_other_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="compression"):
        ProducerConfig(compression="gzip")  # type: ignore[arg-type]


class Python314:
    """The functions of Python 3.14's module, as far as they are used, over the package."""

    def __init__(self) -> None:
        import zstandard

        self.zstandard = zstandard
        self.ZstdError = zstandard.ZstdError

        class DecompressionParameter:
            window_log_max = 100

        self.DecompressionParameter = DecompressionParameter

    def compress(self, body: bytes, level: int) -> bytes:
        return self.zstandard.ZstdCompressor(level=level).compress(body)

    def get_frame_info(self, sealed: bytes) -> Any:
        size = self.zstandard.frame_content_size(sealed)

        class Info:
            decompressed_size = None if size < 0 else size

        return Info

    def ZstdDecompressor(self, options: dict[int, int]) -> Any:
        assert options == {100: 24}
        opener = self.zstandard.ZstdDecompressor()

        class Opener:
            def decompress(self, sealed: bytes, size: int) -> bytes:
                return opener.decompress(sealed, max_output_size=size)

        return Opener()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the real module is there")
def test_the_codec_of_python_3_14_is_called_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zstd, "library", lambda: zstd._of_python(Python314()))
    codec, body = ZstdCodec(), filled(ITEMS).body
    assert codec.unseal(codec.seal(body), len(body)) == body
    with pytest.raises(ValueError, match="declares another size"):
        codec.unseal(codec.seal(body), len(body) + 1)


@pytest.fixture
def aws() -> Iterator[FakeAws]:
    aws = FakeAws(throttle=False)
    aws.client("kinesis").create_stream(StreamName=STREAM, ShardCount=2)
    yield aws


def test_compressed_forms_count_for_the_bound_of_the_buffer(aws: FakeAws) -> None:
    gate, rng = Gate(aws), random.Random(3)
    data = [rng.randbytes(1_000).hex().encode() for _ in range(20)]
    charged = sum(cost_of("k", item, b"") for item in data)
    last = bytes(
        150_000 - charged - 10_000
    )  # fits beside the records, and not beside their compressed form, too
    config = ProducerConfig(compression="zstd", max_buffered_bytes=150_000, put_timeout=0)
    with Producer(config, client=gate) as producer, contextlib.ExitStack() as at_end:
        at_end.callback(gate.open.set)  # or `close` would wait after a failure
        producer.put(STREAM, "k", b"first")
        producer.flush()
        gate.arrived.acquire()
        gate.open.clear()
        for item in data:
            producer.put(STREAM, "k", item)
        producer.flush(timeout=0)
        assert gate.arrived.acquire(timeout=LONG)
        assert charged + 20_000 < producer.stats().buffered_bytes < 2 * charged
        with pytest.raises(BufferFullError):
            producer.put(STREAM, "k", last)
        gate.open.set()
        producer.flush()
        assert producer.stats().buffered_bytes == 0
        producer.put(STREAM, "k", last)


def sum_of(metrics: MemoryMetrics, metric: catalogue.Metric) -> float:
    found = [value.total for series, value in metrics.snapshot().items() if series.name == metric.name]
    return max(found)


@pytest.mark.parametrize("settings", [{}, {"idempotent": True}, {"ordering": "per_shard"}])
def test_a_producer_compresses_and_counts_what_is_billed(aws: FakeAws, settings: dict[str, Any]) -> None:
    gate, metrics = Gate(aws), MemoryMetrics()
    headers = [NO_HEADERS if number % 3 else {"tenant": b"%d" % (number % 5)} for number in range(len(ITEMS))]
    with Producer(ProducerConfig(compression="zstd", **settings), client=gate, metrics=metrics) as producer:
        records = [
            producer.put(STREAM, key, data, headers=more)
            for (key, _, data), more in zip(ITEMS, headers, strict=True)
        ]
        producer.flush()
        stats = producer.stats()
    stored = {
        (record.sequence_number, record.sub_sequence_number): (record.data, record.headers)
        for _, carriers in read_stream(aws.client("kinesis"))
        for record in deaggregate(carriers)
    }
    results = [record.result(0) for record in records]
    places = [(result.sequence_number, result.sub_sequence_number) for result in results]
    assert stored == dict(zip(places, zip([data for _, _, data in ITEMS], headers, strict=True), strict=True))
    sent = [record for request in gate.requests for record in request]
    payload = sum(len(record["Data"]) for record in sent)
    assert sum_of(metrics, catalogue.KINESIS_RECORDS_DATA_PUT) == payload < stats.user_bytes_stored / 2
    assert stats.kinesis_bytes_stored == payload + sum(len(record["PartitionKey"]) for record in sent)
    assert sum_of(metrics, catalogue.USER_RECORDS_DATA_PUT) == stats.user_bytes_stored
