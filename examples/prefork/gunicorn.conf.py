"""Settings of gunicorn for app.py: which process opens a producer, and when it closes it."""

from __future__ import annotations

from typing import Any

from app import application

bind = "127.0.0.1:8000"
workers = 2
threads = 4
preload_app = True
graceful_timeout = 40  # longer than ProducerConfig.record_ttl, so that every record is stored or spooled


def post_worker_init(worker: Any) -> None:
    """Open the producer in the child, once SIGTERM reaches it: in `post_fork`, gunicorn would ignore the signal."""
    application.open()
    worker.log.info("the producer is open")


def worker_exit(_server: Any, worker: Any) -> None:
    """Store what the worker has accepted, after its last request."""
    worker.log.info("records that are neither stored nor spooled: %s", application.close())
