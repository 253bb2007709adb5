"""Subscriptions over HTTP/2 against a server in memory: bytes in, bytes out, no socket and no thread."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from botocore.eventstream import EventStream
from botocore.exceptions import ConnectionClosedError, ConnectTimeoutError, ReadTimeoutError
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import RequestReceived, StreamReset, WindowUpdated
from h2.exceptions import StreamClosedError
from h2.settings import SettingCodes
from urllib3.exceptions import ProtocolError

from kinesis_sdk.consumer.fetch.events import EventReader, Next
from kinesis_sdk.consumer.fetch.http2 import client as http2_client
from kinesis_sdk.consumer.fetch.http2 import connection, loop, protocol
from kinesis_sdk.consumer.fetch.http2.client import Http2Client, _Events, _Link, _request
from kinesis_sdk.consumer.fetch.http2.connection import IDLE_SECONDS, Connection, Request
from kinesis_sdk.consumer.fetch.http2.protocol import STREAM_WINDOW
from kinesis_sdk.consumer.fetch.http2.pushed import PushedResponse
from kinesis_sdk.testing.clock import VirtualClock
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

    def request(self):
        response = PushedResponse("https://kinesis.example", 15.0, self.cancelled_by)
        self.connection.open(REQUEST, response, self.now)
        return response

    def subscribe(self, events=Events):
        response = self.request()
        stream = self.server.of(RequestReceived)[-1].stream_id
        self.server.h2.send_headers(stream, [(":status", "200"), ("x-amzn-requestid", "r")])
        self.read()
        assert response.head() == (200, {"x-amzn-requestid": "r"})
        sink = Sink()
        reader = EventReader(events(response), sink, self.now)
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
    late = client.request()
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
    response = client.request()
    client.server.h2.send_headers(1, [(":status", "400")])
    client.server.push(1, b'{"__type": "ResourceInUse')
    client.server.push(1, b'Exception"}')
    client.server.h2.end_stream(1)
    client.read()
    assert response.head() == (400, {})
    assert b"".join(response.stream()) == b'{"__type": "ResourceInUseException"}'
    endless = client.request()
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
    third = client.request()
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


def test_an_event_that_botocore_parses_to_nothing_does_not_block_the_loop():
    def events(response):
        parser = SimpleNamespace(
            parse=lambda message, _: {"Known": message["body"]} if message["body"] else {}
        )
        return _Events(EventStream(response, None, parser, "SubscribeToShard"), None, response)

    client = Client()
    stream, sink, response = client.subscribe(events)
    client.push(stream, b"", b"a", b"")
    assert (sink.events, sink.ended) == ([{}, {"Known": b"a"}, {}], [])
    with pytest.raises(ProtocolError, match="no event"):
        next(response.stream())


PING = b"\0\0\x08\x06\0\0\0\0\0" + b"12345678"
UNKNOWN = b"\0\x40\0\xfa\0\0\0\0\0" + bytes(16_384)  # a frame of an unknown type


class Channel:
    """A service that sends the same bytes with each read, each of which takes a while, and takes none."""

    def __init__(self, clock, arriving, seconds):
        self.clock, self.arriving, self.seconds = clock, arriving, seconds
        self.reads = 0
        self.timeout = 15.0
        self.is_closed = False

    def settimeout(self, timeout):
        self.timeout = timeout

    def recv(self, size):
        self.reads += 1
        assert self.reads < 100, "it never ends"
        self.clock.advance(min(self.seconds, self.timeout))
        if self.seconds > self.timeout:
            raise TimeoutError
        return self.arriving

    def send(self, data):
        raise BlockingIOError

    def close(self):
        self.is_closed = True


@pytest.mark.parametrize(
    ("arriving", "seconds", "error", "ends_at"),
    [(PING, 4.0, ReadTimeoutError, 15.0), (UNKNOWN, 0.0, ConnectionClosedError, 0.0)],
)
def test_a_service_that_never_sends_settings_cannot_hold_the_thread(arriving, seconds, error, ends_at):
    clock = VirtualClock()
    channel = Channel(clock, arriving, seconds)
    with pytest.raises(error, match=r"https://kinesis\.example"):
        _Link("", channel, None, clock, None).begin("https://kinesis.example", channel, 15.0)
    assert clock.monotonic() == ends_at
    assert channel.is_closed


def test_a_call_waits_only_so_long_for_another_one_to_open_a_connection(monkeypatch):
    monkeypatch.setattr(http2_client, "_is_usable", lambda *_: True)
    client = Http2Client(
        SimpleNamespace(meta=SimpleNamespace(config=SimpleNamespace(connect_timeout=0.0))), VirtualClock()
    )
    with client._opening, pytest.raises(ConnectTimeoutError):
        client.link("https://kinesis.example/")


def test_a_connection_over_which_a_call_timed_out_gets_no_further_calls():
    posts = []
    link = _Link(
        "", Server(), SimpleNamespace(post=lambda *post: posts.append(post)), VirtualClock(), lambda _: None
    )
    PushedResponse("https://kinesis.example", 0.0, link.cancel).close()
    assert link.connection.accepts
    silent = PushedResponse("https://kinesis.example", 0.0, link.cancel)
    silent.begin(200, {})
    with pytest.raises(ReadTimeoutError):
        next(silent.stream())
    silent.close()
    assert not link.connection.accepts, "at once: the next attempt does not wait for the loop"
    assert len(posts) == 2


def test_a_service_that_asks_for_answers_and_never_reads_them_is_left(monkeypatch):
    client = Client()
    _, sink, _ = client.subscribe()
    monkeypatch.setattr(connection, "_MAX_OUT", 10_000)

    def full(data):
        raise BlockingIOError

    client.server.send = full
    client.server.arriving = PING * 500
    client.read()
    assert client.connection.is_open
    assert client.connection.wants_to_write
    client.server.arriving = PING * 500
    client.read()
    assert client.server.is_closed
    assert not client.connection.wants_to_write
    assert "does not read: 17," in str(sink.ended)


def test_the_first_work_of_a_loop_does_not_wait(monkeypatch):
    pipe = [SimpleNamespace(setblocking=lambda _: None, sent=b"") for _ in range(2)]
    pipe[1].send = lambda data: setattr(pipe[1], "sent", data)
    monkeypatch.setattr(loop.socket, "socketpair", lambda: pipe)
    sent_before_start = []
    monkeypatch.setattr(threading.Thread, "start", lambda _: sent_before_start.append(pipe[1].sent))
    loop.Loop("loop", VirtualClock()).post(None, lambda _: None)
    assert sent_before_start == [b"x"]


def test_the_loop_outlives_a_connection_that_cannot_be_closed(caplog):
    client = Client()
    _, sink, _ = client.subscribe()

    def fail(*_):
        raise LookupError("a mistake")

    sink.stream_ended = fail
    loop._guarded(client.connection, fail, 0.0)
    assert not client.connection.is_open
    assert caplog.text.count("LookupError: a mistake") >= 2
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


@pytest.mark.parametrize(
    ("url", "headers", "authority"),
    [
        ("https://kinesis.us-east-1.amazonaws.com:443/", {}, "kinesis.us-east-1.amazonaws.com"),
        ("https://user:secret@Kinesis.Internal.example:8443/", {}, "kinesis.internal.example:8443"),
        ("https://[::1]:443/", {}, "[::1]"),
        ("https://10.0.0.1/", {"Host": b"kinesis.example"}, "kinesis.example"),
    ],
)
def test_the_host_that_is_sent_is_the_host_that_was_signed(url, headers, authority):
    request = _request(SimpleNamespace(url=url, headers={**headers, "Connection": "close"}, body=b"{}"))
    assert (request.authority, dict(request.headers)) == (authority, {})
