"""The connection of admin calls: region, profile, endpoint, and the clients for them."""

from __future__ import annotations

import threading
from typing import Any

from kinesis_sdk.common.aws import make_client


class Connection:
    """The clients of one AWS account and region, each made on first use. Thread-safe.

    Each client makes one attempt per call with the SDK's timeouts; the functions of this package retry where that is safe.

    Args:
        region: AWS region; None takes it from the usual AWS settings.
        profile: Profile of ``~/.aws``; None takes the usual credentials.
        endpoint_url: Endpoint of all services, for example LocalStack's; None takes the usual AWS settings
            (``AWS_ENDPOINT_URL``) or AWS itself.
        clients: Clients to use instead, by service name, for tests and for callers that have their own.

    Attributes:
        region: As given.
        profile: As given.
        endpoint_url: As given.
    """

    def __init__(
        self,
        *,
        region: str | None = None,
        profile: str | None = None,
        endpoint_url: str | None = None,
        clients: dict[str, Any] | None = None,
    ) -> None:
        self.region: str | None = region
        self.profile: str | None = profile
        self.endpoint_url: str | None = endpoint_url
        self._clients: dict[str, Any] = dict(clients or {})
        self._session: Any = None
        self._lock = threading.Lock()

    @property
    def session(self) -> Any:
        """The boto3 session of the clients, for code that makes its own.

        Raises:
            AwsConfigError: If the profile does not exist.
        """
        with self._lock:
            return self._make_session()

    @property
    def kinesis(self) -> Any:
        """The boto3 client of Kinesis."""
        return self.client("kinesis")

    @property
    def dynamodb(self) -> Any:
        """The boto3 client of DynamoDB."""
        return self.client("dynamodb")

    @property
    def cloudwatch(self) -> Any:
        """The boto3 client of CloudWatch."""
        return self.client("cloudwatch")

    def client(self, service: str) -> Any:
        """Return the client of a service: ``kinesis``, ``dynamodb``, ``cloudwatch`` or ``sts``.

        Raises:
            AwsConfigError: If there is no region, the profile does not exist, or the endpoint URL is invalid.
        """
        with self._lock:
            if service not in self._clients:
                self._clients[service] = make_client(
                    service,
                    session=self._make_session(),
                    region_name=self.region,
                    endpoint_url=self.endpoint_url,
                    max_pool_connections=32,
                    read_timeout=15.0,
                )
            return self._clients[service]

    @property
    def options(self) -> list[str]:
        """The command line options that select this connection, for commands that are shown to the user."""
        given = (
            ("--region", self.region),
            ("--profile", self.profile),
            ("--endpoint-url", self.endpoint_url),
        )
        return [part for name, value in given if value is not None for part in (name, value)]

    def _make_session(self) -> Any:
        """Return one session for all clients: boto3's own creation of sessions is not thread-safe."""
        if self._session is None:
            import boto3
            from botocore.exceptions import BotoCoreError

            from kinesis_sdk.common.errors import AwsConfigError

            try:
                self._session = boto3.Session(profile_name=self.profile)
            except BotoCoreError as error:
                # Without a profile of its own, boto3 takes that of AWS_PROFILE, which its message names.
                which = "the profile" if self.profile is None else f"profile {self.profile!r}"
                raise AwsConfigError(
                    f"{which} cannot be used: {error}",
                    operation="",
                    code=type(error).__name__,
                ) from error
        return self._session
