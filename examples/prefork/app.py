"""A WSGI service below gunicorn that accepts events and stores them in the background.

Threads do not survive a fork, so each worker process has a producer of its own: gunicorn.conf.py opens it in the worker and closes it when
the worker ends. An answer of 202 means that the record was accepted; a worker that gets SIGTERM stores all of them before it ends. What could
not be stored within the time-to-live is in the spool file of the process; `kinesis_sdk.read_spool` reads it.

Against the fake AWS, which prints the variables to export in the second terminal::

    kinesis-sdk fake --create-stream orders:2
    cd examples/prefork && gunicorn app:application       # takes gunicorn.conf.py of this folder
    curl -d '{"total": 12}' http://127.0.0.1:8000/customer-7

On AWS, set AWS_DEFAULT_REGION instead. Needs gunicorn.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from kinesis_sdk import BufferFullError, FileSpool, InvalidRecordError, Producer, ProducerConfig

STREAM = os.environ.get("STREAM", "orders")


class Service:
    """The application and its producer.

    Attributes:
        producer: None in gunicorn's main process, which serves no requests.
    """

    producer: Producer | None = None

    def open(self) -> None:
        """Open the producer of this process."""
        spool = FileSpool(f"unsent-{os.getpid()}.jsonl")
        self.producer = Producer(ProducerConfig(put_timeout=0.5), on_record_failed=spool)

    def close(self) -> int:
        """Store what was accepted, or spool it.

        Returns:
            The number of records for which neither happened; 0 is a success.
        """
        return 0 if self.producer is None else self.producer.close()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Accept the body of a request as a record; its path is the partition key."""
        assert self.producer is not None, "gunicorn.conf.py opens the producer"
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        try:
            self.producer.put(STREAM, environ["PATH_INFO"].strip("/"), body)
        except InvalidRecordError:
            status = "400 Bad Request"
        except BufferFullError:
            status = "503 Service Unavailable"
        else:
            status = "202 Accepted"
        start_response(status, [("Content-Length", "0")])
        return []


application = Service()
