"""The AWS and the databases of a run, and the faults between them and the workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import boto3

from integration.localstack.dynamodb_local import dynamodb_local
from integration.localstack.server import use
from integration.postgres import running_postgres
from integration.proxy import Proxy
from kinesis_sdk.testing import ServerProcess, start_server_process

ENDPOINTS = ("fake", "localstack")
STORES = ("sqlite", "postgresql", "dynamodb", "dynamodb-local")

_LOST = ("PutRecords", "UpdateItem", "PutItem", "TransactWriteItems")
_CHANCE_OF_LOSS = 0.02
_LATE = {"kind": "late_store", "operation": "PutRecords", "probability": 0.005, "seconds": 5.0}


class Services:
    """The servers of a run.

    Attributes:
        aws_url: The AWS with the stream and the leases, for the run itself.
        worker_aws_url: The same for producers and workers, through a proxy.
        store: Address of the store for the run itself; see `open_store`.
        worker_store: The same for workers.
        missing: Faults that these servers cannot inject.
    """

    def __init__(
        self,
        aws: Proxy,
        aws_url: str,
        store: str,
        worker_store: str,
        proxies: list[Proxy],
        fake: ServerProcess | None,
    ) -> None:
        self.aws_url, self.worker_aws_url = aws_url, aws.endpoint_url
        self.store, self.worker_store = store, worker_store
        self.missing: tuple[str, ...] = (
            () if fake else ("requests that are stored seconds after they failed",)
        )
        self._proxies = proxies
        self._fake = fake

    def begin_faults(self) -> None:
        """Lose responses of calls that were carried out, and store some requests late."""
        for proxy in self._proxies:
            proxy.configure(reset_after=0, probability=_CHANCE_OF_LOSS, operations=_LOST)
        if self._fake is not None:
            self._fake.admin("faults", _LATE)

    def end_faults(self) -> None:
        """Stop injecting faults."""
        for proxy in self._proxies:
            proxy.heal()
        if self._fake is not None:
            self._fake.admin("faults", method="DELETE")

    def cut(self) -> None:
        """Reset all connections to AWS and DynamoDB Local, whatever they are doing."""
        for proxy in self._proxies:
            proxy.cut()

    def faults(self) -> Counter[str]:
        """Return the number of calls hit so far, by fault."""
        found: Counter[str] = Counter()
        for proxy in self._proxies:
            found["answers lost"] += proxy.affected_operations.total()
        if self._fake is not None:
            found["stored late"] += self._fake.admin("stats")["faults"].get("late_store", 0)
        return found


@contextmanager
def serve(endpoint: str, store: str, *, folder: Path, seed: int) -> Iterator[Services]:
    """Start the servers of a run.

    Args:
        endpoint: ``fake``, ``localstack``, or the URL of a running LocalStack.
        store: One of `STORES`.
        folder: For logs, and for SQLite's database.
        seed: Seed of the lost responses.

    Raises:
        CannotInstallError: If LocalStack or DynamoDB Local cannot be installed on this machine.
        NoPostgresError: If PostgreSQL is missing.
    """
    with ExitStack() as stack:
        fake = None
        if endpoint == "fake":
            fake = stack.enter_context(start_server_process(own_session=True))
            aws_url = fake.endpoint_url
        elif endpoint == "localstack":
            aws_url = stack.enter_context(use(folder / "localstack.log"))
        else:
            aws_url = endpoint
        # The first call makes LocalStack start DynamoDB, which takes longer than a worker waits for a response.
        boto3.client("dynamodb", endpoint_url=aws_url).list_tables()
        aws = stack.enter_context(Proxy(aws_url, seed=seed))
        proxies = [aws]
        if store == "sqlite":
            address = worker_address = f"sqlite:///{folder}/effects.db"
        elif store == "postgresql":
            address = worker_address = stack.enter_context(running_postgres())
        elif store == "dynamodb-local":
            url = stack.enter_context(dynamodb_local(folder / "dynamodb-local.log", heap="1g"))
            proxies.append(stack.enter_context(Proxy(url, seed=seed + 1)))
            address, worker_address = f"dynamodb+{url}", f"dynamodb+{proxies[1].endpoint_url}"
        else:
            address, worker_address = f"dynamodb+{aws_url}", f"dynamodb+{aws.endpoint_url}"
        yield Services(aws, aws_url, address, worker_address, proxies, fake)
