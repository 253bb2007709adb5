"""The connection of admin calls: region, profile, endpoint, and the clients for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kinesis_sdk.common.aws import make_client, translate_errors
from kinesis_sdk.common.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

_OF_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws", ".amazonaws.eu")
"""Suffixes of the host names of AWS; other endpoints are shown by name."""

STATEMENT_TIMEOUT = 5.0
"""Seconds after which a statement to a SQL database fails; a poll repeats it."""


class Connection:
    """The clients of one AWS account and region, each made on first use. Thread-safe.

    Each client makes one attempt per call with the SDK's timeouts; the functions of this package retry where that is safe.

    Args:
        region: AWS region; None for the usual AWS settings.
        profile: Profile of ``~/.aws``; None for the usual credentials.
        endpoint_url: Endpoint of all services, for example LocalStack's; None for the usual AWS settings
            (``AWS_ENDPOINT_URL``) or AWS itself.
        lease_store: URL of the SQL database in which the workers keep their leases, as their ``lease_store``; None for
            DynamoDB.
        clients: Clients to use instead, by service name, for tests and for callers with clients of their own.

    Attributes:
        region: As given.
        profile: As given.
        endpoint_url: As given.
        lease_store: The given URL; it may contain a password.

    Raises:
        ConfigError: If ``lease_store`` is not the URL of a database that other processes can read.
    """

    def __init__(
        self,
        *,
        region: str | None = None,
        profile: str | None = None,
        endpoint_url: str | None = None,
        lease_store: str | None = None,
        clients: dict[str, Any] | None = None,
    ) -> None:
        if lease_store is not None:
            from kinesis_sdk.consumer.leases import check_database

            check_database("lease_store", lease_store)
        self.region: str | None = region
        self.profile: str | None = profile
        self.endpoint_url: str | None = endpoint_url
        self.lease_store: str | None = lease_store
        self._clients: dict[str, Any] = dict(clients or {})
        self._engine: Engine | None = None
        self._session: Any = None
        self._lock = threading.Lock()

    @property
    def session(self) -> Any:
        """The boto3 session of the clients, for code that makes its own clients.

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
                    # The timeout is for each read of a response. A user waits for it, and the call is repeated once.
                    read_timeout=8.0,
                )
            return self._clients[service]

    @property
    def database(self) -> Engine:
        """The engine of `lease_store`, which connects with the first statement. Its statements time out after `STATEMENT_TIMEOUT`.

        Raises:
            ConfigError: If there is no such database, SQLAlchemy or the driver is not installed, or the URL cannot be read.
        """
        from kinesis_sdk.consumer.leases import without_password
        from kinesis_sdk.consumer.sql import open_engine

        with self._lock:
            if self._engine is None:
                url = self.lease_store or ""
                try:
                    self._engine = open_engine(
                        "lease_store", url, timeout=STATEMENT_TIMEOUT, sets_journal=False
                    )
                except ImportError as error:
                    shown = without_password(url)
                    raise ConfigError(
                        "lease_store",
                        shown,
                        "the URL of a database whose driver is installed",
                        problem=f"lease_store={shown!r}: {error}",
                    ) from error
            return self._engine

    def counted(self, clients: dict[str, Any], count: Callable[[str], None]) -> Connection:
        """Return the same connection with other clients, and count its SQL statements.

        Args:
            clients: Clients by service name.
            count: Called with the verb of each statement to `database`.
        """
        same = Connection(
            region=self.region,
            profile=self.profile,
            endpoint_url=self.endpoint_url,
            lease_store=self.lease_store,
            clients=clients,
        )
        if self.lease_store is not None:
            from kinesis_sdk.consumer.sql import counted_engine

            same._engine = counted_engine(self.database, count)
        return same

    def resolved(self) -> Connection:
        """Return the same connection with the region and endpoint from the environment, for commands and pages that name them.

        Raises:
            AwsConfigError: As `client`.
        """
        meta = self.kinesis.meta
        used = str(meta.endpoint_url)
        host = urlsplit(used).hostname or ""
        same = Connection(
            region=self.region or meta.region_name,
            profile=self.profile,
            endpoint_url=self.endpoint_url or (None if host.endswith(_OF_AWS) else used),
            lease_store=self.lease_store,
            clients=self._clients,
        )
        same._session, same._engine = self._session, self._engine
        return same

    def account(self) -> str:
        """Return the AWS account ID. Makes one call to STS, which needs no permission.

        Raises:
            AwsError: If the call failed.
        """
        sts = self.client("sts")
        with translate_errors("GetCallerIdentity", sts):
            return str(sts.get_caller_identity()["Account"])

    @property
    def shown_lease_store(self) -> str | None:
        """The URL of `lease_store` without its password; None for DynamoDB."""
        if self.lease_store is None:
            return None
        from kinesis_sdk.consumer.leases import without_password

        return without_password(self.lease_store)

    def _make_session(self) -> Any:
        """Return one session for all clients: boto3's own creation of sessions is not thread-safe."""
        if self._session is None:
            import boto3
            from botocore.exceptions import BotoCoreError

            from kinesis_sdk.common.errors import AwsConfigError

            try:
                self._session = boto3.Session(profile_name=self.profile)
            except BotoCoreError as error:
                # If no profile is given, boto3 takes the one in AWS_PROFILE, and names it in its message.
                which = "the profile" if self.profile is None else f"profile {self.profile!r}"
                raise AwsConfigError(
                    f"{which} cannot be used: {error}",
                    operation="",
                    code=type(error).__name__,
                ) from error
        return self._session
