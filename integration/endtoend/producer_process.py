"""A producer of an end-to-end run: one process, which logs a record's result once its future has it.

The future's own callback writes the line, so a killed producer has logged only acknowledgements that it received.

| line | when |
| --- | --- |
| ``n``, ``p`` put at, ``a`` after s, ``s`` shard, ``q`` ``b`` position, ``t`` attempts, ``c`` why | acknowledged |
| ``n``, ``p``, ``t``, ``failed`` | failed, with the cause |
| ``put`` | twice a second: records put so far |
| ``count`` | total number of puts, once everything has a result |
"""

from __future__ import annotations

import faulthandler
import json
import logging
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from kinesis_sdk.common.errors import RecordFailedError
from kinesis_sdk.common.stop_flag import StopFlag
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.producer.records.future import PendingRecord
from kinesis_sdk.testing.accounting.delivery_log import LineWriter
from kinesis_sdk.testing.flights import load_flights, make_payload

_REPORT_SECONDS = 0.5
_MOST_SECONDS = 15.0
"""Records without a result are limited to as many as are put in this many seconds."""


def wait_for_end(stop: StopFlag) -> None:
    """Request a stop at SIGTERM and at the end of standard input, whose other end the run holds until it ends.

    SIGUSR1 prints the stacks of all threads, for a process that does not end.
    """
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def wait() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait, name="parent", daemon=True).start()


def _tell(log: LineWriter, told: list[int], number: int, put_at: float, future: Any) -> None:
    told.append(number)
    try:
        result = future.result(0)
    except RecordFailedError as error:
        log.write({"n": number, "p": put_at, "t": len(error.attempts), "failed": str(error)})
        return
    log.write(
        {
            "n": number,
            "p": put_at,
            "a": time.time() - put_at,
            "s": result.shard_id,
            "q": result.sequence_number,
            "b": result.sub_sequence_number,
            "t": len(result.attempts),
            "c": sorted({attempt.code for attempt in result.attempts if attempt.code}),
        }
    )


def main() -> int:
    """Put flights at an even pace until told to stop; then flush."""
    settings = json.loads(sys.stdin.readline())
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    stop = StopFlag()
    wait_for_end(stop)
    log = LineWriter(Path(settings["log"]))
    flights = load_flights()
    first, rate, run, stream = (settings[name] for name in ("first", "rate", "run", "stream"))
    config = ProducerConfig(**settings["config"])
    count = 0
    told: list[int] = []
    reported = start = time.monotonic()
    with Producer(config, region_name=settings["region"], endpoint_url=settings["endpoint_url"]) as producer:
        while not stop.wait(0.005):
            now = time.monotonic()
            # After a freeze, continue at the same pace without a burst for the missed time.
            start = max(start, now - (count + rate) / rate)
            # Stop putting while the service lags: on a slow machine it would never catch up.
            due = min(int((now - start) * rate) + 1, len(told) + int(_MOST_SECONDS * rate))
            for number in range(first + count, first + due):
                flight = flights[number % len(flights)]
                put_at = time.time()
                future: PendingRecord = producer.put(stream, flight.origin, make_payload(run, number, flight))
                future.add_done_callback(partial(_tell, log, told, number, put_at))
                count += 1
            if now - reported > _REPORT_SECONDS:
                reported = now
                log.write({"put": count})
        producer.flush()
    log.write({"count": count})
    return 0


if __name__ == "__main__":
    sys.exit(main())
