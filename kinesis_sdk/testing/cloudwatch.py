"""Fakes of CloudWatch (metric data in a list) and of STS (the caller's identity)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kinesis_sdk.testing.errors import AwsError, validation

_MAX_DATA = 1000


class FakeCloudWatch:
    """CloudWatch that keeps metric data in a list. Thread-safe."""

    target_prefix = "GraniteServiceVersion20100801"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._data: list[dict[str, Any]] = []
        self.operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "PutMetricData": self.put_metric_data,
            "ListMetrics": self.list_metrics,
        }

    def reset(self) -> None:
        """Forget all data."""
        with self._lock:
            self._data = []

    def metric_data(self) -> list[dict[str, Any]]:
        """Return all metric data received so far, in order, each with its ``Namespace``."""
        with self._lock:
            return list(self._data)

    def put_metric_data(self, request: dict[str, Any]) -> dict[str, Any]:
        """PutMetricData: up to 1,000 data with up to 30 dimensions each."""
        namespace, data = request.get("Namespace"), request.get("MetricData")
        if not isinstance(namespace, str) or not namespace:
            raise AwsError("MissingParameter", "The parameter Namespace is required.")
        if not isinstance(data, list) or not data:
            raise AwsError("MissingParameter", "The parameter MetricData is required.")
        if len(data) > _MAX_DATA:
            raise validation(f"The collection MetricData must not have a size greater than {_MAX_DATA}.")
        for datum in data:
            if not datum.get("MetricName"):
                raise AwsError(
                    "MissingParameter", "The parameter MetricData.member.N.MetricName is required."
                )
            if len(datum.get("Dimensions") or []) > 30:
                raise validation(
                    "The collection MetricData.member.N.Dimensions must not have a size greater than 30."
                )
        with self._lock:
            self._data.extend({"Namespace": namespace, **datum} for datum in data)
        return {}

    def list_metrics(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListMetrics: the distinct metrics received, in one page."""
        wanted = request.get("Namespace")
        seen: dict[str, dict[str, Any]] = {}
        for datum in self.metric_data():
            if wanted in {None, datum["Namespace"]}:
                metric = {
                    "Namespace": datum["Namespace"],
                    "MetricName": datum["MetricName"],
                    "Dimensions": datum.get("Dimensions") or [],
                }
                seen.setdefault(repr(metric), metric)
        return {"Metrics": list(seen.values())}


class FakeSts:
    """STS of a fixed account."""

    target_prefix = "AWSSecurityTokenServiceV20110615"

    def __init__(self, account_id: str) -> None:
        self._account_id = account_id
        self.operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "GetCallerIdentity": self.get_caller_identity,
        }

    def get_caller_identity(self, request: dict[str, Any]) -> dict[str, Any]:
        """GetCallerIdentity."""
        del request
        account = self._account_id
        return {"UserId": "AKIAFAKE", "Account": account, "Arn": f"arn:aws:iam::{account}:user/fake"}
