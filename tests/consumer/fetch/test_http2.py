"""Subscriptions over HTTP/2 against a server in memory: bytes in, bytes out, no socket and no thread."""

from __future__ import annotations

import pytest
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import RequestReceived, StreamReset, WindowUpdated
from h2.exceptions import StreamClosedError
from h2.settings import SettingCodes
from urllib3.exceptions import ProtocolError

from kinesis_sdk.consumer.fetch.events import EventReader, Next
from kinesis_sdk.consumer.fetch.http2 import protocol
from kinesis_sdk.consumer.fetch.http2.connection import IDLE_SECONDS, Connection, Request
from kinesis_sdk.consumer.fetch.http2.protocol import STREAM_WINDOW
from kinesis_sdk.consumer.fetch.http2.pushed import PushedResponse
from kinesis_sdk.testing.http.eventstream import encode_event

REQUEST = Request("kinesis.example", "/", {"x-amz-target": "Kinesis_20131202.SubscribeToShard"}, b"{}")


class Server:
    """The other end, and the channel to it. `pieces`: how many bytes a read returns at most."""

    def __init__(self, *, streams=100, pieces=1 << 20):
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: streams})
        self.pieces = pieces
        self.events = []
        self.arriving = b""
        self.is_cut = self.is_closed = False

    def send(self, data):
        self.events += self.h2.receive_data(bytes(data))
        return len(data)

    def recv(self, size):
        self.arriving += self.h2.data_to_send()
        piece, self.arriving = self.arriving[: self.pieces], self.arriving[self.pieces :]
        if not piece and not self.is_cut:
            raise BlockingIOError
        return piece

    def fileno(self):
        return 0

    def close(self):
        self.is_closed = True

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def push(self, stream, data):
        """Send what the window allows; return the rest."""
        while data and (room := min(self.h2.local_flow_control_window(stream), 16_384)):
            self.h2.send_data(stream, data[:room])
            data = data[room:]
        return data


class Sink:
    """Takes events while there is room."""

    def __init__(self):
        self.events = []
        self.room = 1 << 60
        self.ended = []
        self.held = None

    def accept(self, reader, event):
        self.held = event
        return self.retry(reader)

    def retry(self, reader):
        if not self.room:
            return Next.WAIT
        self.room -= 1
        self.events.append(self.held)
        return Next.STOP if self.held == b"stop" else Next.READ

    def stream_ended(self, reader, error):
        self.ended.append(error)


class Events:
    """An event stream without botocore: the payload of each message."""

    def __init__(self, response):
        self.response = response

    def __iter__(self):
        for piece in self.response.stream():
            headers = int.from_bytes(piece[4:8], "big")
            yield piece[12 + headers : -4]

    def close(self):
        self.response.close()


class Client:
    """A connection with its streams, whose work runs at once."""

    def __init__(self, **server):
        self.server = Server(**server)
        self.now = 0.0
        self.freed = 0
        self.connection = Connection(self.server, self.now, self.on_free)
        self.connection.flush()
        self.read()
        self.cancelled = []

    def on_free(self):
        self.freed += 1

    def read(self):
        self.connection.has_more = True
        while self.connection.has_more:
            self.connection.read(self.now)
        for response in self.__dict__.get("cancelled", ()):
            self.connection.cancel(response, self.now)

    def subscribe(self):
        response = PushedResponse("https://kinesis.example", 15.0, self.cancelled_by)
        self.connection.open(REQUEST, response, self.now)
        stream = self.server.of(RequestReceived)[-1].stream_id
        self.server.h2.send_headers(stream, [(":status", "200"), ("x-amzn-requestid", "r")])
        self.read()
        assert response.head() == (200, {"x-amzn-requestid": "r"})
        sink = Sink()
        reader = EventReader(Events(response), sink, self.now)
        self.connection.attach(response, reader, self.now)
        return stream, sink, response

    def cancelled_by(self, response):
        self.cancelled.append(response)

    def push(self, stream, *payloads):
        for payload in payloads:
            assert not self.server.push(stream, encode_event("SubscribeToShardEvent", payload))
        self.read()

    def windows(self, stream):
        """Bytes that the client has let the server send on a stream, beyond the first window."""
        return sum(event.delta for event in self.server.of(WindowUpdated) if event.stream_id == stream)


@pytest.mark.parametrize("pieces", [1 << 20, 100, 7])
def test_each_stream_gets_its_events_in_order(pieces):
    client = Client(pieces=pieces)
    streams = [client.subscribe() for _ in range(3)]
    for number in range(20):
        for stream, _, _ in streams:
            client.push(stream, b"%d of %d" % (number, stream))
    for stream, sink, _ in streams:
        assert sink.events == [b"%d of %d" % (number, stream) for number in range(20)]
    (request, *_) = client.server.of(RequestReceived)
    assert dict(request.headers)["x-amz-target"] == "Kinesis_20131202.SubscribeToShard"
    assert dict(request.headers)[":authority"] == "kinesis.example"


def test_a_stream_without_room_stops_the_service_and_no_other_stream():
    client = Client()
    slow, slow_sink, slow_response = client.subscribe()
    quick, quick_sink, _ = client.subscribe()
    slow_sink.room = 1
    event, sent = encode_event("SubscribeToShardEvent", b"x" * 10_000), 0
    while not (rest := client.server.push(slow, event)):
        sent += 1
        client.read()
    assert sent * 10_000 < STREAM_WINDOW + 2 * 11_000, "one event was read, and one window filled up"
    assert len(slow_sink.events) == 1
    for _ in range(3 * STREAM_WINDOW // 10_000):
        client.push(quick, b"y" * 10_000)
    assert len(quick_sink.events) == 3 * STREAM_WINDOW // 10_000
    slow_sink.room = 1 << 60
    client.connection.resume(slow_response, client.now)
    assert len(slow_sink.events) == sent
    assert not client.server.push(slow, rest)
    client.read()
    assert len(slow_sink.events) == sent + 1


def test_an_event_larger_than_the_window_arrives():
    client = Client()
    stream, sink, _ = client.subscribe()
    rest = encode_event("SubscribeToShardEvent", b"z" * (3 * STREAM_WINDOW))
    while rest:
        rest = client.server.push(stream, rest)
        client.read()
    assert [len(event) for event in sink.events] == [3 * STREAM_WINDOW]


def test_a_reset_ends_one_stream():
    client = Client()
    broken, broken_sink, _ = client.subscribe()
    other, other_sink, _ = client.subscribe()
    client.push(broken, b"a")
    client.server.h2.reset_stream(broken, ErrorCodes.INTERNAL_ERROR)
    client.read()
    client.push(other, b"b")
    assert broken_sink.events == [b"a"]
    (error,) = broken_sink.ended
    assert isinstance(error, ProtocolError)
    assert "code 2" in str(error)
    assert (other_sink.events, other_sink.ended) == ([b"b"], [])
    assert client.freed == 1


@pytest.mark.parametrize("how", ["GOAWAY", "cut", "garbage"])
def test_a_connection_that_ends_is_told_to_all_streams_after_what_arrived(how):
    client = Client()
    streams = [client.subscribe() for _ in range(3)]
    waiting = streams[2][1]
    waiting.room = 0
    for stream, _, _ in streams:
        client.server.push(stream, encode_event("SubscribeToShardEvent", b"last"))
    if how == "GOAWAY":
        client.server.h2.close_connection()
    else:
        client.read()
        client.server.arriving = b"\x00" * 200 if how == "garbage" else b""
        client.server.is_cut = how == "cut"
    client.read()
    assert client.server.is_closed
    assert not client.connection.accepts
    for _, sink, _ in streams[:2]:
        assert sink.events == [b"last"]
        assert [type(error) for error in sink.ended] == [ProtocolError]
    assert (waiting.events, waiting.ended) == ([], [])
    waiting.room = 1
    client.connection.resume(streams[2][2], client.now)
    assert waiting.events == [b"last"]
    assert [type(error) for error in waiting.ended] == [ProtocolError]
    late = PushedResponse("https://kinesis.example", 15.0, client.cancelled_by)
    client.connection.open(REQUEST, late, client.now)
    with pytest.raises(ConnectionClosedError):
        late.head()


def test_a_subscription_that_ends_by_itself_has_no_error():
    client = Client()
    stream, sink, _ = client.subscribe()
    client.push(stream, b"a")
    client.server.h2.end_stream(stream)
    client.read()
    assert (sink.events, sink.ended) == ([b"a"], [None])
    assert client.server.of(StreamReset) == [], "there is nothing left to cancel"


def test_silence_ends_a_stream_but_not_one_that_waits_for_room():
    client = Client()
    _, silent, _ = client.subscribe()
    stream, waiting, response = client.subscribe()
    waiting.room = 0
    client.push(stream, b"a")
    client.now = 14.0
    client.connection.expire(client.now)
    assert silent.ended == []
    client.now = 15.0
    client.connection.expire(client.now)
    assert [type(error) for error in silent.ended] == [ReadTimeoutError]
    assert not client.connection.accepts, "the connection may be dead"
    waiting.room = 1
    client.connection.resume(response, client.now)
    assert (waiting.events, waiting.ended) == ([b"a"], [])
    client.now = 29.0
    client.connection.expire(client.now)
    assert waiting.ended == []


@pytest.mark.parametrize("end", ["by itself", "stopped", "stopped without room"])
def test_streams_that_come_and_go_use_up_no_window(monkeypatch, end):
    monkeypatch.setattr(protocol, "_CONNECTION_WINDOW", 1 << 20)
    client = Client()
    for _ in range(30):
        stream, sink, response = client.subscribe()
        sink.room = 0 if end == "stopped without room" else 1
        client.push(stream, b"x" * 60_000)
        if end == "by itself":
            client.server.h2.end_stream(stream)
        else:
            response.close()
        client.read()
    assert client.freed == 30
    assert client.server.h2.outbound_flow_control_window > 1 << 18


def test_a_reader_that_stops_cancels_its_stream_and_loses_no_window(monkeypatch):
    monkeypatch.setattr(protocol, "_CONNECTION_WINDOW", 1 << 20)
    client = Client()
    stream, sink, _ = client.subscribe()
    client.push(stream, b"stop")
    assert sink.ended == []
    assert [event.error_code for event in client.server.of(StreamReset)] == [ErrorCodes.CANCEL]
    assert client.freed == 1
    before = client.server.h2.outbound_flow_control_window
    other, others, _ = client.subscribe()
    client.push(other, b"x" * 200_000)
    for _ in range(12):
        client.push(other, b"x" * 200_000)
    assert len(others.events) == 13
    assert client.server.h2.outbound_flow_control_window > before / 3


@pytest.mark.parametrize("length", [15, 26 << 20, (1 << 32) - 1])
def test_a_message_of_an_impossible_length_ends_the_stream(length):
    client = Client()
    stream, sink, _ = client.subscribe()
    client.server.push(stream, length.to_bytes(4, "big") + b"x" * 20)
    client.read()
    (error,) = sink.ended
    assert f"{length:,} bytes" in str(error)
    assert client.connection.is_open


def test_the_document_of_an_error_is_read_and_bounded():
    client = Client()
    response = PushedResponse("https://kinesis.example", 15.0, client.cancelled_by)
    client.connection.open(REQUEST, response, client.now)
    client.server.h2.send_headers(1, [(":status", "400")])
    client.server.push(1, b'{"__type": "ResourceInUse')
    client.server.push(1, b'Exception"}')
    client.server.h2.end_stream(1)
    client.read()
    assert response.head() == (400, {})
    assert b"".join(response.stream()) == b'{"__type": "ResourceInUseException"}'
    endless = PushedResponse("https://kinesis.example", 15.0, client.cancelled_by)
    client.connection.open(REQUEST, endless, client.now)
    client.server.h2.send_headers(3, [(":status", "500")])
    with pytest.raises(StreamClosedError):
        for _ in range(10):
            client.server.push(3, b"x" * 200_000)
            client.read()
    with pytest.raises(ProtocolError, match="more than 1,048,576 bytes"):
        list(endless.stream())


def test_the_services_limit_of_streams_is_kept():
    client = Client(streams=2)
    assert client.connection.capacity == 2
    for _ in range(2):
        client.subscribe()
    third = PushedResponse("https://kinesis.example", 15.0, client.cancelled_by)
    client.connection.open(REQUEST, third, client.now)
    with pytest.raises(ConnectionClosedError):
        third.head()
    assert not client.connection.accepts
    assert Client(streams=100_000).connection.capacity == 128


def test_a_connection_without_streams_is_closed_after_a_while():
    client = Client()
    stream, sink, _ = client.subscribe()
    client.now = 100.0
    client.push(stream, b"stop")
    client.connection.expire(client.now + IDLE_SECONDS - 1)
    assert client.connection.is_open
    client.connection.expire(client.now + IDLE_SECONDS)
    assert client.server.is_closed
    assert sink.events == [b"stop"]


def test_a_silent_service_times_out_the_call():
    response = PushedResponse("https://kinesis.example", 0.0, lambda response: None)
    with pytest.raises(ReadTimeoutError):
        response.head()
    response.begin(200, {})
    with pytest.raises(ReadTimeoutError):
        next(response.stream())
