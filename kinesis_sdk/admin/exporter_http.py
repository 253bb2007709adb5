"""HTTP endpoint of the exporter: ``/metrics`` for Prometheus, ``/lag/<application>`` and ``/keda`` for KEDA, ``/healthz``."""

from __future__ import annotations

import json
import threading
from typing import Any
from urllib.parse import unquote, urlsplit

from kinesis_sdk.admin.exporter import FleetMetrics
from kinesis_sdk.consumer.health_server import BoundedHandler, BoundedServer

_JSON = "application/json"


class ExporterPages:
    """Pages by path, without sockets.

    Args:
        metrics: The metrics.

    Raises:
        ImportError: If ``prometheus_client`` is not installed.
    """

    def __init__(self, metrics: FleetMetrics) -> None:
        from prometheus_client import CollectorRegistry

        self._metrics = metrics
        self._registry = CollectorRegistry()
        self._registry.register(metrics)

    def page(self, path: str) -> tuple[int, str, bytes]:
        """Return status, content type and body of a path."""
        route = urlsplit(path).path
        if route == "/metrics":
            from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

            return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        if route == "/healthz":
            late = [name for name in self._metrics.applications if not self._metrics.view(name)[1]]
            return _json(503 if late else 200, {"ok": not late, "not_fresh": late})
        if route == "/keda":
            found = {name: self._metrics.summary(name) for name in self._metrics.applications}
            return _json(200, {"applications": {name: one for name, one in found.items() if one is not None}})
        if route.startswith("/lag/"):
            return self._lag(unquote(route.removeprefix("/lag/")))
        if route == "/":
            return (
                200,
                "text/plain; charset=utf-8",
                b"kinesis-sdk exporter: /metrics /keda /lag/<application> /healthz\n",
            )
        return _json(404, {"error": "there is /metrics, /keda, /lag/<application> and /healthz"})

    def _lag(self, name: str) -> tuple[int, str, bytes]:
        if name not in self._metrics.applications:
            return _json(404, {"error": "the exporter does not watch this application"})
        summary = self._metrics.summary(name)
        if summary is None:
            # Not 0: KEDA takes an error for "not known" and uses its fallback.
            return _json(503, {"error": "the lag is not known yet, or the lease table could not be read"})
        return _json(200, summary)


def _json(status: int, body: Any) -> tuple[int, str, bytes]:
    return status, _JSON, (json.dumps(body, indent=2) + "\n").encode()


class ExporterServer:
    """Serves `ExporterPages` in threads. Use it as a context manager.

    Args:
        pages: The pages.
        host: Address to listen at.
        port: Port; 0 takes a free one.

    Attributes:
        port: The port.

    Raises:
        OSError: If the address cannot be listened at.
    """

    def __init__(self, pages: ExporterPages, host: str, port: int) -> None:
        class Handler(BoundedHandler):
            def do_GET(self) -> None:  # noqa: N802 - the name of http.server
                status, kind, body = pages.page(self.path)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = BoundedServer(host, port, Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="exporter", daemon=True)

    def __enter__(self) -> ExporterServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)
