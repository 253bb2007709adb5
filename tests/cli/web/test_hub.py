from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from kinesis_sdk.admin.recording.recorder import Recording
from kinesis_sdk.cli.web.hub import Channel
from tests.cli.web.asgi import settled
from tests.cli.web.generated import GeneratedFleet, ManualWatch


def with_channel(test: Callable[[Channel, ManualWatch], Awaitable[None]], *, linger: float = 0.0) -> None:
    watches: list[ManualWatch] = []

    def make(on_view):
        watches.append(ManualWatch(GeneratedFleet(20, 3), on_view))
        return watches[0]

    async def run() -> None:
        channel = Channel(make, Recording(), linger=linger, keep_alive=3600.0)
        await test(channel, watches[0])

    asyncio.run(run())


def data_of(event: bytes) -> tuple[str, dict]:
    name, data = event.decode().strip().split("\n")
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def opened(channel: Channel):
    """An open page: its events are taken from when this returns."""
    events = channel.events()
    first = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    return events, first


def test_pages_share_one_watch_and_the_last_one_ends_it() -> None:
    async def test(channel: Channel, watch: ManualWatch) -> None:
        assert (watch.starts, channel.watching) == (0, False)
        one, first = await opened(channel)
        two, second = await opened(channel)
        assert watch.starts == 1
        watch.tick()
        assert data_of(await first)[0] == data_of(await second)[0] == "picture"
        await one.aclose()
        await settled()
        assert channel.watching
        await two.aclose()
        await settled()
        assert (watch.stops, channel.watching, channel.pages) == (1, False, 0)

    with_channel(test)


def test_a_reload_does_not_begin_again() -> None:
    async def test(channel: Channel, watch: ManualWatch) -> None:
        one, first = await opened(channel)
        watch.tick()
        await first
        await one.aclose()
        two, again = await opened(channel)
        assert data_of(await again)[0] == "picture", "what is known is shown at once"
        await two.aclose()
        assert (watch.starts, watch.stops) == (1, 0)
        channel.close()
        assert watch.stops >= 1

    with_channel(test, linger=3600.0)


def test_a_new_page_gets_the_picture_and_an_open_one_the_changes() -> None:
    async def test(channel: Channel, watch: ManualWatch) -> None:
        events, first = await opened(channel)
        watch.tick()
        assert data_of(await first)[0] == "picture"
        watch.tick()
        name, data = data_of(await anext(events))
        assert name == "changes"
        assert "whole" not in data.get("leases", {})
        await events.aclose()

    with_channel(test)


def test_a_page_that_does_not_read_gets_one_picture_instead_of_a_growing_queue() -> None:
    async def test(channel: Channel, watch: ManualWatch) -> None:
        events, first = await opened(channel)
        for _ in range(40):
            watch.tick()
        await asyncio.sleep(0)
        names = [data_of(await first)[0]]
        last = None
        while last is None or last["head"]["at"] != channel.view.at:  # type: ignore[union-attr]
            name, last = data_of(await asyncio.wait_for(anext(events), 30))
            names.append(name)
        assert len(names) <= 9
        assert "picture" in names
        following = asyncio.ensure_future(anext(events))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not following.done(), "nothing comes after the newest one"
        following.cancel()

    with_channel(test)


def test_closing_ends_every_page() -> None:
    async def test(channel: Channel, watch: ManualWatch) -> None:
        _, first = await opened(channel)
        channel.close()
        try:
            await first
        except StopAsyncIteration:
            return
        raise AssertionError("the stream of events goes on")

    with_channel(test)


def test_a_channel_that_is_kept_goes_on_without_a_page() -> None:
    async def test(channel: Channel, watch: ManualWatch) -> None:
        channel.keep()
        channel.keep()
        view = watch.tick()
        assert channel._recording.view_at(view.application, view.at) is not None
        events, first = await opened(channel)
        watch.tick()
        await first
        await events.aclose()
        await settled()
        assert (watch.starts, watch.stops, channel.watching) == (1, 0, True)
        channel.close()
        assert watch.stops >= 1

    with_channel(test)


def test_a_quiet_stream_says_that_it_lives() -> None:
    async def run() -> None:
        channel = Channel(
            lambda on_view: ManualWatch(GeneratedFleet(4, 1), on_view), Recording(), keep_alive=0.0
        )
        events = channel.events()
        assert await anext(events) == b": keep-alive\n\n"
        await events.aclose()

    asyncio.run(run())


def test_an_open_lease_is_measured_more_often_and_has_its_history() -> None:
    async def test(channel: Channel, watch: ManualWatch) -> None:
        events, first = await opened(channel)
        view = watch.tick()
        await first
        key = view.leases[2].lease_key
        found = channel.lease(key)
        assert found is not None
        assert found["lease"]["counter"] == view.leases[2].counter
        assert watch.focused == {key}
        assert channel.lease("unknown") is None
        assert watch.focused == {key}
        await events.aclose()

    with_channel(test)


def test_a_call_that_does_not_end_is_told() -> None:
    async def run() -> None:
        watch = ManualWatch(GeneratedFleet(4, 1), lambda view: None)
        channel = Channel(lambda on_view: watch, Recording(), keep_alive=0.0)
        events = channel.events()
        watch.waits = ("Scan", 4.9)
        assert await anext(events) == b": keep-alive\n\n"
        watch.waits = ("Scan", 5.4)
        assert data_of(await anext(events)) == ("waiting", {"operation": "Scan", "seconds": 5})
        watch.waits = None
        assert await anext(events) == b": keep-alive\n\n"
        await events.aclose()

    asyncio.run(run())
