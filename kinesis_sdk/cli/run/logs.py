"""The log of `kinesis-sdk run`: every line names the worker, even lines of the handler's own loggers."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from typing import Literal

from kinesis_sdk.common.log_fields import FIELDS


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the fields of structured logging that the line has."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update({name: value for name in FIELDS if (value := getattr(record, name, None)) is not None})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


class _NameWorker(logging.Filter):
    """Adds the worker to lines that do not name one."""

    def __init__(self, worker: str) -> None:
        super().__init__()
        self._worker = worker

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "worker", None) is None:
            record.worker = self._worker
        return True


def configure_logging(worker: str, level: str, form: Literal["text", "json"]) -> None:
    """Write the log of this process to standard error; ``worker`` is a worker id, or ``supervisor``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_NameWorker(worker))
    handler.setFormatter(
        JsonFormatter()
        if form == "json"
        else logging.Formatter("%(asctime)s %(levelname)s [%(worker)s] %(name)s: %(message)s")
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # These libraries log each request at DEBUG, with payloads and signatures.
    for name in ("boto3", "botocore", "urllib3"):
        logging.getLogger(name).setLevel(logging.WARNING)
