"""What a page of the console costs: bytes for each update, CPU time of the server, and script time in the browser.

Views are generated: one every 2 s in the fleet's own time, in which 15 % of the shards measure another lag.
"""

from __future__ import annotations

import json
import statistics
import time

from integration.ui.browser import open_browser, why_none
from kinesis_sdk.cli.web.server import ConsoleServer
from kinesis_sdk.cli.web.wire import changes, picture
from tests.cli.web.generated import GeneratedBackend, GeneratedFleet

SIZES = ((4, 2), (100, 10), (1000, 40), (1000, 200))
UPDATES = 60


def size(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":")))


def measure_bytes(shards: int, owners: int) -> tuple[int, int, float, int, float]:
    fleet = GeneratedFleet(shards, owners)
    whole = size(fleet.view().to_dict())
    before = picture(fleet.view())
    sizes, seconds = [], []
    for _ in range(UPDATES):
        view = fleet.view()
        began = time.process_time()
        after = picture(view)
        change = changes(before, after)
        json.dumps(change, separators=(",", ":"))
        seconds.append(time.process_time() - began)
        sizes.append(size(change))
        before = after
    return whole, size(before), statistics.median(sizes), max(sizes), statistics.median(seconds) * 1000


def measure_script(shards: int, owners: int) -> list[float]:
    backend = GeneratedBackend({"billing": GeneratedFleet(shards, owners)})
    server = ConsoleServer(backend, port=0)
    server.start()
    try:
        with open_browser() as browser:
            page = browser.new_page(viewport={"width": 1600, "height": 1000})
            page.goto(f"{server.url}#/fleet/billing")
            while not ("billing" in backend.watches and backend.watches["billing"].starts):
                time.sleep(0.01)
            for _ in range(UPDATES):
                backend.watches["billing"].tick()
                page.evaluate(
                    "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
                )
            return list(page.evaluate("performance.getEntriesByName('update').map((one) => one.duration)"))
    finally:
        server.stop()


def main() -> None:
    print(f"{'shards':>7} {'owners':>7} {'view':>10} {'first':>9} {'update':>8} {'worst':>8} {'server':>9}")
    for shards, owners in SIZES:
        whole, first, median, worst, server = measure_bytes(shards, owners)
        print(
            f"{shards:>7,} {owners:>7} {whole:>8,} B {first:>7,} B {median:>6,.0f} B {worst:>6,} B {server:>6.1f} ms"
        )
    reason = why_none()
    if reason is not None:
        print(f"\nscript time in the browser: not measured, {reason}")
        return
    print(
        f"\n{'shards':>7} {'owners':>7} {'first':>9} {'median':>9} {'worst':>9}   script time per update in Chromium"
    )
    for shards, owners in SIZES:
        first, *rest = measure_script(shards, owners)
        print(
            f"{shards:>7,} {owners:>7} {first:>6.0f} ms {statistics.median(rest):>6.1f} ms {max(rest):>6.1f} ms"
        )


if __name__ == "__main__":
    main()
