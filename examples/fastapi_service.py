"""A FastAPI service that puts each request into a stream, and answers when the record is stored.

It shows one `AsyncProducer` for the life of the process (`lifespan`), and what to answer when Kinesis takes less than arrives: the
buffer has a limit, `put` waits for room for half a second, and then the client gets a 503 instead of the process running out of memory.

Against the fake AWS, which prints the variables to export in the second terminal::

    kinesis-sdk fake --create-stream orders:2
    uvicorn --app-dir examples fastapi_service:app
    curl -d '{"total": 12}' http://127.0.0.1:8000/orders/customer-7

On AWS, set AWS_DEFAULT_REGION instead. Needs fastapi and uvicorn.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request

from kinesis_sdk import AsyncProducer, BufferFullError, InvalidRecordError, ProducerConfig, RecordFailedError

STREAM = os.environ.get("STREAM", "orders")
CONFIG = ProducerConfig(
    record_max_buffered_time=0.02,  # a request waits for its record, so collect for 20 ms only
    record_ttl=10,
    max_buffered_bytes=4 * 1024 * 1024,
    put_timeout=0.5,
)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the producer when the service starts; when it stops, wait until every record is stored or has failed."""
    async with AsyncProducer(CONFIG) as producer:
        app.state.producer = producer
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{customer}", status_code=201)
async def put_order(customer: str, request: Request) -> dict[str, str]:
    """Store an order; orders of one customer have one partition key, and so one shard."""
    producer: AsyncProducer = request.app.state.producer
    try:
        result = await producer.put_and_wait(STREAM, customer, await request.body())
    except InvalidRecordError as error:
        raise HTTPException(400, str(error)) from error
    except BufferFullError as error:
        raise HTTPException(503, "more arrives than the stream takes", {"Retry-After": "1"}) from error
    except RecordFailedError as error:
        raise HTTPException(502, "the record could not be stored") from error
    return {"shard_id": result.shard_id, "sequence_number": result.sequence_number}
