"""The console's application on generated fleets, and requests to it."""

from __future__ import annotations

import json
from typing import Any

from kinesis_sdk.cli.web.app import Console
from kinesis_sdk.cli.web.security import CSRF_HEADER, Policy
from tests.cli.web.asgi import App, Reply, request
from tests.cli.web.generated import GeneratedBackend, GeneratedFleet

CHANGE = {CSRF_HEADER: "csrf", "content-type": "application/json"}


def backend(**fleets: GeneratedFleet) -> GeneratedBackend:
    return GeneratedBackend(fleets or {"billing": GeneratedFleet(20, 3)})


def app_of(one: GeneratedBackend | None = None, *, token: str | None = None, **settings: Any) -> App:
    one = one or backend()
    return Console(one, Policy(csrf_token="csrf", token=token), planner=one, **settings).make_app()


def get(url: str, app: App | None = None, **headers: str) -> Reply:
    return request(app or app_of(), "GET", url, headers)


def post(url: str, body: object, app: App) -> Reply:
    return request(app, "POST", url, CHANGE, json.dumps(body).encode())
