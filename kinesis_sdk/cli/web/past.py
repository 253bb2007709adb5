"""The recorded past for the pages, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kinesis_sdk.admin import FleetView
from kinesis_sdk.admin.plain import plain
from kinesis_sdk.admin.recording.recorder import Recording
from kinesis_sdk.admin.report import incident_report
from kinesis_sdk.cli.spelling import speller
from kinesis_sdk.cli.web.backend import Backend
from kinesis_sdk.cli.web.wire import Picture, lease_detail, picture

_REPORT_SPAN = 6 * 3600.0
"""Seconds of the history of a shard in a report."""


class Past:
    """The recording in the form that pages get. Every method may block for tens of milliseconds."""

    def __init__(self, recording: Recording, backend: Backend) -> None:
        self._recording = recording
        self._backend = backend

    def picture(self, application: str, at: float) -> Picture | None:
        """Return the picture at a given time; None if the application was not watched then."""
        view = self._recording.view_at(application, at)
        return None if view is None else picture(view, options=self._backend.options)

    def lease(self, application: str, key: str, at: float) -> Mapping[str, Any] | None:
        """Return one lease at a given time; None if it did not exist, or was not watched then."""
        view = self._recording.view_at(application, at)
        found = None if view is None else lease_detail(view, key)
        return None if found is None else {"lease": found, "at": at}

    def history(self, application: str, key: str, end: float, span: float) -> Mapping[str, Any]:
        """Return the history of a lease up to a given time."""
        found: Mapping[str, Any] = plain(self._recording.history(application, key, end - span, end))
        return found

    def course(self, application: str, end: float, span: float) -> Mapping[str, Any]:
        """Return the course of an application up to a given time."""
        found: Mapping[str, Any] = plain(self._recording.course(application, end - span, end))
        return found

    def report(
        self, application: str, view: FleetView | None, at: float | None, keys: Sequence[str], link: str
    ) -> str | None:
        """Return an application as Markdown, at a given time or now; None if it was not watched at that time."""
        if view is None and at is not None:
            view = self._recording.view_at(application, at)
        if view is None:
            return None
        history = None
        if keys:
            history = self._recording.history(application, keys[0], view.at - _REPORT_SPAN, view.at)
        described = self._backend.describe()
        place = [
            f"account {described['account']}" if described.get("account") else None,
            described.get("region"),
            described.get("endpoint"),
        ]
        return incident_report(
            view,
            place=", ".join(str(one) for one in place if one),
            lease_keys=keys,
            history=history,
            link=link,
            spell=speller(self._backend.options),
        )
