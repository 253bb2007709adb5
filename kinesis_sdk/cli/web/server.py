"""The console as a server: uvicorn on one address, until Ctrl-C or until another thread stops it."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from kinesis_sdk.admin.recording.recorder import Recording
from kinesis_sdk.cli.web.app import Console, new_token
from kinesis_sdk.cli.web.backend import Backend, Planner
from kinesis_sdk.cli.web.letters import LetterPages
from kinesis_sdk.cli.web.security import Policy, is_address, is_loopback
from kinesis_sdk.common.errors import ConfigError, KinesisSdkError

REQUEST_SECONDS = 10.0
"""Seconds for a whole request to arrive, counted from the connection or from its first byte."""


class ConsoleServer:
    """A console that listens on one address.

    Args:
        planner: Plans changes; None for a console that cannot make changes.
        letters: The locations of dead letters; None for a console that does not show dead letters.
        host: Address to listen on. An address that other machines can reach needs a token. Changes need a token on any address, because
            other users of this machine can also connect.
        port: TCP port; 0 takes a free port.
        token: Token that each browser must present once; None creates a token if the address needs one.
        allowed_hosts: Names, besides localhost and addresses, under which the console may be opened.
        applications: Applications that the command line named.
        stream: Stream that the command line named.
        recording: Keeps each view, to show the past. The named applications are then watched even while no page is
            open. None for the memory of this process, while pages are open.
        allow_changes: Whether changes may be made.

    Raises:
        ConfigError: If the token is too short.
        KinesisSdkError: If the address cannot be used.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        planner: Planner | None = None,
        letters: LetterPages | None = None,
        host: str = "127.0.0.1",
        port: int = 8787,
        token: str | None = None,
        allowed_hosts: tuple[str, ...] = (),
        applications: tuple[str, ...] = (),
        stream: str | None = None,
        recording: Recording | None = None,
        allow_changes: bool = False,
    ) -> None:
        if token is not None and len(token) < 16:
            raise ConfigError("token", f"{len(token)} characters", "at least 16 characters")
        self._is_own_token = token is None
        if token is None and (allow_changes or not is_loopback(host)):
            token = new_token()
        self._token = token
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(128)
        except OSError as error:
            self._socket.close()
            raise KinesisSdkError(f"cannot listen on {host} port {port}: {error.strerror}") from error
        self.port: int = self._socket.getsockname()[1]
        self._host = host
        names = {name.lower() for name in allowed_hosts} | ({host.lower()} if not is_address(host) else set())
        policy = Policy(
            host_names=frozenset(names),
            token=self._token,
            csrf_token=new_token(),
            cookie_name=f"kinesis_sdk_ui_{self.port}",
        )
        self._console = Console(
            backend,
            policy,
            planner=planner,
            letters=letters,
            applications=applications,
            stream=stream,
            recording=recording,
            allow_changes=allow_changes,
        )
        if recording is not None:
            self._console.keep_watching()
        config = uvicorn.Config(
            self._console.make_app(),
            # uvicorn's access log contains queries: the token, positions, keys of leases.
            access_log=False,
            log_level="warning",
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=3,
            limit_concurrency=200,
            http=_PatientProtocol,
        )
        logging.getLogger("uvicorn.error").addFilter(_once_a_minute)
        self._server = _Server(config, self._console)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Address to open, with the token if one is needed."""
        shown = "localhost" if is_loopback(self._host) or self._host in ("0.0.0.0", "::") else self._host  # noqa: S104
        if self._host == "::1":
            shown = "[::1]"
        address = (
            f"http://{f'[{shown}]' if ':' in shown and not shown.startswith('[') else shown}:{self.port}/"
        )
        return f"{address}?token={self._token}" if self._token is not None else address

    @property
    def shown_url(self) -> str:
        """The address for output that other people may read: without the token if the caller gave it, and therefore knows it."""
        return self.url if self._is_own_token else self.url.partition("?")[0]

    def serve(self) -> None:
        """Serve until SIGINT or SIGTERM. Called in the main thread.

        Raises:
            KeyboardInterrupt: After the shutdown, if SIGINT was the cause.
        """
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()
        if self._server.interrupted:
            raise KeyboardInterrupt

    def start(self) -> None:
        """Serve in a thread until `stop`."""
        self._thread = threading.Thread(target=self.serve, name="kinesis-sdk-ui", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread that `start` began, and wait for it."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()


class _PatientProtocol(H11Protocol):
    """uvicorn's protocol with a deadline for requests. Otherwise slow or silent clients would take all connections."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request."""
        super().connection_made(transport)
        self._judge(has_begun=True)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._judge(has_begun=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        self._forget()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request for as long as uvicorn keeps idle connections."""
        super().on_response_complete()
        self._forget()

    def _judge(self, *, has_begun: bool) -> None:
        # A client that has sent its whole request is in neither of these states.
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._forget()
        elif has_begun and self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _OnceAMinute(logging.Filter):
    """Passes uvicorn's line about too many connections once a minute, instead of once for each rejected request."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._next = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is logged."""
        if "concurrency limit" not in record.getMessage():
            return True
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + 60.0
        return True


_once_a_minute = _OnceAMinute()


class _Server(uvicorn.Server):
    """uvicorn's server, which first ends the endless streams of events; otherwise it would wait for them."""

    def __init__(self, config: uvicorn.Config, console: Console) -> None:
        super().__init__(config)
        self._console = console
        self.interrupted = False

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._console.close()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of uvicorn
        # Without uvicorn's captured signals, which uvicorn would raise again after the shutdown: SIGTERM is a clean
        # end.
        self.interrupted = self.interrupted or sig == signal.SIGINT
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True
