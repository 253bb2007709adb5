"""HTTP endpoint of the exporter: ``/metrics`` for Prometheus, ``/lag/<application>`` and ``/keda`` for KEDA, ``/healthz``."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from kinesis_sdk.admin.exporter import FleetMetrics
from kinesis_sdk.common.page_server import Page, json_page


class ExporterPages:
    """Pages by path, without sockets; raises ImportError if ``prometheus_client`` is not installed."""

    def __init__(self, metrics: FleetMetrics) -> None:
        from prometheus_client import CollectorRegistry

        self._metrics = metrics
        self._registry = CollectorRegistry()
        self._registry.register(metrics)

    def page(self, path: str) -> Page:
        """Return the page of a path."""
        route = urlsplit(path).path
        if route == "/metrics":
            from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

            return Page(200, CONTENT_TYPE_LATEST, generate_latest(self._registry))
        if route == "/healthz":
            late = [name for name in self._metrics.applications if not self._metrics.view(name)[1]]
            return json_page(503 if late else 200, {"ok": not late, "not_fresh": late})
        if route == "/keda":
            found = {name: self._metrics.summary(name) for name in self._metrics.applications}
            return json_page(
                200, {"applications": {name: one for name, one in found.items() if one is not None}}
            )
        if route.startswith("/lag/"):
            return self._lag(unquote(route.removeprefix("/lag/")))
        if route == "/":
            return Page(
                200,
                "text/plain; charset=utf-8",
                b"Pages: /metrics /keda /lag/<application> /healthz\n",
            )
        return json_page(404, {"error": "there is /metrics, /keda, /lag/<application> and /healthz"})

    def _lag(self, name: str) -> Page:
        if name not in self._metrics.applications:
            return json_page(404, {"error": "the exporter does not watch this application"})
        summary = self._metrics.summary(name)
        if summary is None:
            # Not 0: KEDA takes an error to mean "unknown", and uses its fallback.
            return json_page(503, {"error": "the lag is not known yet, or the lease table could not be read"})
        return json_page(200, summary)
