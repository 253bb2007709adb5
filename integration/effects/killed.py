"""A pair of processes that kill themselves, with servers and records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import boto3
import sqlalchemy

from integration.effects.kills import Pair
from integration.postgres import running_postgres, why_no_postgres
from kinesis_sdk.testing import start_server_process
from tests import HANG

DATABASES = ("sqlite", *(["postgresql"] if why_no_postgres() is None else []))
RECORDS = 300
KEY_COUNT = 8


class Run:
    """A pair on the stream ``orders``, and what it has written to a database.

    Attributes:
        put: Number of records so far. The data of each is its number.
    """

    def __init__(
        self, module: str, engine: sqlalchemy.Engine, endpoint_url: str, folder: Path, **settings: Any
    ) -> None:
        self.endpoint_url, self.engine = endpoint_url, engine
        self.put = 0
        self._kinesis = boto3.client("kinesis", endpoint_url=endpoint_url)
        database = engine.url.render_as_string(hide_password=False)
        settings |= {"stream": "orders", "database": database, "endpoint_url": endpoint_url}
        self._pair = Pair(module, settings, folder)
        self.kills = self._pair.kills
        self.close = self._pair.destroy

    def numbers(self, table: sqlalchemy.Table) -> list[int]:
        """Return the records of a table, in their order."""
        query = sqlalchemy.select(table.c.number).order_by(table.c.place)
        with self.engine.connect() as connection:
            return list(connection.execute(query).scalars())

    def play(self, points: Sequence[str], is_done: Callable[[], bool]) -> None:
        """Put records until kills have hit each step; then let everything end without them."""
        deadline = time.monotonic() + HANG
        while self.put < RECORDS or set(self.kills()) < set(points):
            assert time.monotonic() < deadline, self.kills()
            self._put(50 if self.put < RECORDS else 10)
            self._pair.tend()
            time.sleep(1)
        self._pair.destroy()
        while not is_done():
            assert time.monotonic() < deadline, "records are missing"
            self._pair.tend(kills=False)
            time.sleep(0.5)

    def _put(self, count: int) -> None:
        records = [
            {"PartitionKey": f"k{number % KEY_COUNT}", "Data": str(number).encode()}
            for number in range(self.put, self.put + count)
        ]
        assert self._kinesis.put_records(StreamName="orders", Records=records)["FailedRecordCount"] == 0
        self.put += count


@contextmanager
def running(
    module: str,
    streams: Sequence[str],
    tables: sqlalchemy.MetaData,
    database: str,
    folder: Path,
    **settings: Any,
) -> Iterator[Run]:
    """Yield a run with servers of its own."""
    with ExitStack() as stack:
        server = stack.enter_context(start_server_process(own_session=True))
        url = f"sqlite:///{folder}/all.db"
        if database == "postgresql":
            url = stack.enter_context(running_postgres())
        engine = sqlalchemy.create_engine(url)
        stack.callback(engine.dispose)
        tables.create_all(engine)
        for name in streams:
            boto3.client("kinesis", endpoint_url=server.endpoint_url).create_stream(
                StreamName=name, ShardCount=2
            )
        run = Run(module, engine, server.endpoint_url, folder, **settings)
        stack.callback(run.close)
        yield run
