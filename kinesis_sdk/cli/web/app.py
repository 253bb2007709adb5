"""The routes of the console. Each handler checks its arguments, calls the backend in a thread, and returns plain data."""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kinesis_sdk._version import __version__
from kinesis_sdk.admin.recording.recorder import Recording
from kinesis_sdk.cli.web.backend import Backend, Planner
from kinesis_sdk.cli.web.changes import ChangeJobs
from kinesis_sdk.cli.web.hub import Channel
from kinesis_sdk.cli.web.letters import LetterPages
from kinesis_sdk.cli.web.overview import Overview
from kinesis_sdk.cli.web.past import Past
from kinesis_sdk.cli.web.searches import Searches
from kinesis_sdk.cli.web.security import RESPONSE_HEADERS, Policy, is_own_host, is_token, reject
from kinesis_sdk.common.errors import (
    AwsConfigError,
    AwsError,
    ConfigError,
    EndpointUnreachableError,
    KinesisSdkError,
    ResourceNotFoundError,
)

_LOG = logging.getLogger(__name__)

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
Handler = Callable[[Request], Awaitable[Response]]

_MAX_BODY = 64 * 1024
"""Maximum bytes of the body of a request."""
_MAX_CHANNELS = 32
"""Maximum number of applications that are watched or remembered at a time."""
_MAX_KEYS, _MAX_LINK = 100, 4096
"""Maximum leases, and maximum characters of the address, in a report."""
_MAX_SEARCH_MINUTES = 366 * 24 * 60
MAX_RECORDS = 500
"""Maximum user records on a page of the record browser."""


class Console:
    """The console's state: one channel for each application that was opened, and the changes that were planned.

    Args:
        planner: Plans changes; None for a console that cannot make changes.
        letters: The locations of dead letters; None for a console that does not show dead letters.
        applications: Applications that the command line named; if empty, they are found by their tables.
        stream: Stream that the command line named; None if it named none.
        recording: None for a recording in memory.
        allow_changes: Whether changes may be planned and made.
    """

    def __init__(
        self,
        backend: Backend,
        policy: Policy,
        *,
        planner: Planner | None = None,
        letters: LetterPages | None = None,
        applications: tuple[str, ...] = (),
        stream: str | None = None,
        recording: Recording | None = None,
        allow_changes: bool = False,
    ) -> None:
        self._recording = recording or Recording()
        self._past = Past(self._recording, backend)
        self._backend = backend
        self._policy = policy
        self._planner = planner
        self._letters = letters
        self._applications = applications
        self._stream = stream
        self._allow_changes = allow_changes
        self._channels: dict[str, Channel] = {}
        self._jobs = ChangeJobs()
        self._overview = Overview(backend.read_fleets)
        self._found: tuple[str, ...] = ()
        self._searches = Searches()

    def channel(self, application: str) -> Channel:
        """Return the channel of an application, which is created if needed."""
        found = self._channels.get(application)
        if found is None:
            if len(self._channels) >= _MAX_CHANNELS:
                self._forget_one()
            found = Channel(
                self._backend.make_watch(application), self._recording, options=self._backend.options
            )
            self._channels[application] = found
        return found

    def keep_watching(self) -> None:
        """Watch the applications that the command line named even while no page is open, for the recording."""
        for name in self._applications:
            self.channel(name).keep()

    def close(self) -> None:
        """End all streams of events and all watches. Called in the event loop's thread."""
        self._searches.close()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def make_app(self) -> ASGIApp:
        """Return the ASGI application."""
        routes: tuple[tuple[str, str, Handler], ...] = (
            ("GET", "/", self._page),
            ("GET", "/assets/{name}", self._asset),
            ("GET", "/api/session", self._session),
            ("GET", "/api/applications", self._list_applications),
            ("GET", "/api/overview", self._read_fleets),
            ("GET", "/api/applications/{application:path}/events", self._events),
            ("GET", "/api/applications/{application:path}/lease", self._lease),
            ("GET", "/api/applications/{application:path}/course", self._course),
            ("GET", "/api/applications/{application:path}/past", self._past_picture),
            ("GET", "/api/applications/{application:path}/report", self._report),
            ("POST", "/api/applications/{application:path}/plans", self._plan),
            ("POST", "/api/plans/{plan}/run", self._run),
            ("GET", "/api/plans/{plan}", self._outcome),
            ("GET", "/api/letters/{place:int}/groups", self._letter_groups),
            ("GET", "/api/letters/{place:int}/list", self._letter_list),
            ("GET", "/api/letters/{place:int}/letter", self._letter),
            ("POST", "/api/letters/{place:int}/plans", self._plan_letters),
            ("GET", "/api/stream", self._lineage),
            ("GET", "/api/records", self._records),
            ("POST", "/api/searches", self._search),
            ("GET", "/api/searches/{search}", self._search_state),
            ("POST", "/api/searches/{search}/stop", self._stop_search),
        )
        app = Starlette(
            routes=[Route(path, _guarded(handler), methods=[method]) for method, path, handler in routes]
        )
        return Guard(app, self._policy)

    def _forget_one(self) -> None:
        for name, channel in self._channels.items():
            if channel.pages == 0 and not channel.is_kept:
                channel.close()
                del self._channels[name]
                return
        raise ConfigError("application", len(self._channels), f"at most {_MAX_CHANNELS} open applications")

    async def _page(self, _request: Request) -> Response:
        return _file("index.html")

    async def _asset(self, request: Request) -> Response:
        return _file(request.path_params["name"])

    async def _session(self, _request: Request) -> Response:
        return JSONResponse(
            {
                "version": __version__,
                "csrf": self._policy.csrf_token,
                "hasPlanner": self._planner is not None,
                "allowChanges": self._allow_changes,
                "applications": list(self._applications),
                "stream": self._stream,
                "options": list(self._backend.options),
                "deadLetters": [] if self._letters is None else self._letters.places,
                **await run_in_threadpool(self._backend.describe),
            }
        )

    async def _list_applications(self, _request: Request) -> Response:
        found = await run_in_threadpool(self._backend.applications)
        self._found = tuple(str(one["name"]) for one in found)
        return JSONResponse({"applications": list(found)})

    async def _read_fleets(self, request: Request) -> Response:
        """Return the latest views of the listed applications; with ``read=1``, read them again."""
        if request.query_params.get("read") == "1":
            self._overview.read(self._found)
        seen = {
            name: view
            for name, channel in self._channels.items()
            if name in self._found and (view := channel.view) is not None
        }
        return JSONResponse(self._overview.state(seen))

    async def _events(self, request: Request) -> Response:
        channel = self.channel(request.path_params["application"])
        return StreamingResponse(channel.events(), media_type="text/event-stream")

    async def _lease(self, request: Request) -> Response:
        application, query = request.path_params["application"], request.query_params
        key, span = query.get("key", ""), _number("span", query.get("span", "600"), 604_800)
        found: Mapping[str, Any] | None
        if (at := _moment(query.get("at"))) is not None:
            found = await run_in_threadpool(self._past.lease, application, key, at)
        else:
            found = self.channel(application).lease(key)
        if found is None:
            return _problem(404, "not-found", "There is no such lease, or it was not looked at then.")
        history = await run_in_threadpool(self._past.history, application, key, found["at"], span)
        return JSONResponse({**found, "history": history})

    async def _course(self, request: Request) -> Response:
        application, query = request.path_params["application"], request.query_params
        span = _number("span", query.get("span", "3600"), 604_800)
        end = _moment(query.get("at"))
        if end is None:
            found = self._channels.get(application)
            end = found.view.at if found is not None and found.view is not None else time.time()
        return JSONResponse(await run_in_threadpool(self._past.course, application, end, span))

    async def _past_picture(self, request: Request) -> Response:
        at = _moment(request.query_params.get("at"))
        found = await run_in_threadpool(self._past.picture, request.path_params["application"], at or 0.0)
        if found is None:
            return _problem(404, "not-observed", "Nothing looked at the application then.")
        return JSONResponse(found)

    async def _report(self, request: Request) -> Response:
        application, query = request.path_params["application"], request.query_params
        at, keys = _moment(query.get("at")), tuple(query.getlist("key")[:_MAX_KEYS])
        found = self._channels.get(application)
        view = found.view if found is not None and at is None else None
        text = await run_in_threadpool(
            self._past.report, application, view, at, keys, query.get("link", "")[:_MAX_LINK]
        )
        if text is None:
            return _problem(404, "not-observed", "Nothing looked at the application then.")
        return JSONResponse({"text": text})

    async def _lineage(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        return JSONResponse(await run_in_threadpool(self._backend.stream, name))

    async def _records(self, request: Request) -> Response:
        query = request.query_params
        return JSONResponse(
            await run_in_threadpool(
                lambda: self._backend.records(
                    stream=query.get("stream", ""),
                    shard=query.get("shard", ""),
                    position=query.get("position", ""),
                    iterator=query.get("iterator") or None,
                    limit=min(_number("limit", query.get("limit", "50")), MAX_RECORDS),
                )
            )
        )

    async def _search(self, request: Request) -> Response:
        body = await _body(request)
        stream, key, where = (_text(name, body.get(name, "")) for name in ("stream", "key", "where"))
        minutes = _number("minutes", str(body.get("minutes", 15)), _MAX_SEARCH_MINUTES)
        found = await run_in_threadpool(
            lambda: self._backend.search(stream=stream, key=key, where=where, minutes=minutes)
        )
        return JSONResponse({"id": self._searches.start(*found)}, status_code=202)

    async def _search_state(self, request: Request) -> Response:
        known = request.query_params.get("known", "0")
        number = 0 if known == "0" else _number("known", known)
        found = self._searches.state(request.path_params["search"], number)
        return (
            _problem(404, "not-found", "There is no such search.") if found is None else JSONResponse(found)
        )

    async def _stop_search(self, request: Request) -> Response:
        if not self._searches.stop(request.path_params["search"]):
            return _problem(404, "not-found", "There is no such search.")
        return JSONResponse({})

    async def _plan(self, request: Request) -> Response:
        if self._planner is None:
            return _problem(404, "not-found", "This console has no changes.")
        body = await _body(request)
        application = request.path_params["application"]
        plan, act = await run_in_threadpool(self._planner.plan, application, body)
        # A read-only console shows what a change would write, but keeps no plan that could be run.
        identity = None
        if self._allow_changes and not plan.get("empty"):
            identity = self._jobs.add(plan, act, self.channel(application).refresh)
        return JSONResponse({"id": identity, **plan})

    def _letter_pages(self) -> LetterPages:
        if self._letters is None:
            raise ConfigError(
                "dead_letters", "", "a location: start the console with --dead-letters LOCATION"
            )
        return self._letters

    async def _letter_groups(self, request: Request) -> Response:
        pages, place = self._letter_pages(), request.path_params["place"]
        return JSONResponse(await run_in_threadpool(pages.groups, place, request.query_params))

    async def _letter_list(self, request: Request) -> Response:
        pages, place = self._letter_pages(), request.path_params["place"]
        return JSONResponse(await run_in_threadpool(pages.letters, place, request.query_params))

    async def _letter(self, request: Request) -> Response:
        pages, place, query = self._letter_pages(), request.path_params["place"], request.query_params
        payload = query.get("payload") == "1"
        found = await run_in_threadpool(lambda: pages.letter(place, query.get("id", ""), payload=payload))
        return (
            _problem(404, "missing", "There is no such letter any longer.")
            if found is None
            else JSONResponse(found)
        )

    async def _plan_letters(self, request: Request) -> Response:
        pages, place = self._letter_pages(), request.path_params["place"]
        plan, act = await run_in_threadpool(pages.plan, place, await _body(request))
        identity = None
        if self._allow_changes and not plan.get("empty"):
            identity = self._jobs.add(plan, act)
        return JSONResponse({"id": identity, **plan})

    async def _run(self, request: Request) -> Response:
        if not self._allow_changes:
            return _problem(403, "read-only", "This console was started without --allow-changes.")
        if not self._jobs.start(request.path_params["plan"]):
            return _problem(
                409, "gone", "This change was made already, or its plan is too old. Plan it again."
            )
        return JSONResponse({}, status_code=202)

    async def _outcome(self, request: Request) -> Response:
        found = self._jobs.state(request.path_params["plan"])
        return (
            _problem(404, "not-found", "There is no such change.") if found is None else JSONResponse(found)
        )


class Guard:
    """The border of the application: rejects the requests that `security.reject` rejects, and adds headers to every response."""

    def __init__(self, app: ASGIApp, policy: Policy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # uvicorn closes the connection of an unaccepted WebSocket

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(dict(RESPONSE_HEADERS))
            await send(message)

        response = self._answer(scope)
        await (response or self._app)(scope, receive, send_with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        """Return the response to a request that the application must not see; None if the application may see it."""
        headers = {name.lower(): value for name, value in Headers(scope=scope).items()}
        path, method = scope["path"], scope["method"]
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if (
            path == "/"
            and method == "GET"
            and is_own_host(self._policy, headers.get("host", ""))
            and is_token(self._policy, token)
        ):
            # The cookie replaces the token, which must stay neither in the address bar nor in the history.
            response: Response = RedirectResponse("/", status_code=303)
            response.set_cookie(
                self._policy.cookie_name,
                self._policy.cookie_value,
                httponly=True,
                samesite="strict",
                path="/",
            )
            return response
        rejection = reject(self._policy, method, path, headers)
        if rejection is None:
            return None
        if path == "/":
            return Response(
                rejection.message + "\n", rejection.status, media_type="text/plain; charset=utf-8"
            )
        return _problem(rejection.status, "rejected", rejection.message)


def new_token() -> str:
    """Return a random token of 192 bits that can be used in a URL."""
    return secrets.token_urlsafe(24)


def _file(name: str) -> Response:
    """Return an asset. Only names listed in the folder exist, so no path leads outside."""
    folder = files("kinesis_sdk.cli.web") / "assets"
    found = {item.name: item for item in folder.iterdir()}.get(name)
    kind = _TYPES.get("." + name.rpartition(".")[2])
    if found is None or kind is None:
        return _problem(404, "not-found", "There is no such file.")
    return Response(found.read_bytes(), headers={"content-type": kind})


async def _body(request: Request) -> Mapping[str, Any]:
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > _MAX_BODY:
            raise ConfigError("body", f"more than {_MAX_BODY} bytes", f"at most {_MAX_BODY} bytes")
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError("body", "no JSON", "a JSON object") from error
    if not isinstance(body, dict):
        raise ConfigError("body", type(body).__name__, "a JSON object")
    return body


def _number(field: str, text: str, most: int = 10_000) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
        raise ConfigError(field, text[:20], f"1 to {most}")
    return int(text)


def _text(field: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > 1000:
        raise ConfigError(field, type(value).__name__, "a text of at most 1000 characters")
    return value


def _moment(text: str | None) -> float | None:
    """Return a moment in epoch seconds; None if the request has none."""
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,11}(\.\d{1,6})?", text, re.ASCII):
        raise ConfigError("at", text[:20], "a moment in epoch seconds")
    return float(text)


def _problem(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=status)


def describe_error(error: Exception) -> tuple[int, str, str]:
    """Return the HTTP status, a stable code and the message for an error."""
    if isinstance(error, ConfigError):
        return 400, "invalid", str(error)
    if isinstance(error, AwsConfigError):
        return 502, "credentials", str(error)
    if isinstance(error, ResourceNotFoundError):
        return 404, "missing", str(error)
    if isinstance(error, EndpointUnreachableError):
        return 502, "unreachable", str(error)
    if isinstance(error, AwsError):
        return 502, "call-failed", str(error)
    return 409, "refused", str(error)


def _guarded(handler: Handler) -> Handler:
    """Return a handler that turns the errors of the given handler into responses.

    Starlette would pass an unexpected error on to the server's log with its text, which may contain a record. The place where the error
    was raised is enough to find its cause.
    """

    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except KinesisSdkError as error:
            return _problem(*describe_error(error))
        except Exception as error:  # noqa: BLE001 - it is logged, and the page is told
            name, place = type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
            _LOG.error("%s %s failed: %s, raised here:\n%s", request.method, request.url.path, name, place)
            return _problem(500, "broken", f"The console failed: {name}. Its log says where.")

    return guarded
