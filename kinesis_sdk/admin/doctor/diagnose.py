"""One examination from start to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.doctor.judge import judge
from kinesis_sdk.admin.doctor.model import Report
from kinesis_sdk.admin.doctor.permissions import ROLES
from kinesis_sdk.admin.doctor.probes import DEFAULT_SAMPLES, Probes
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.stream import StreamId

MAX_SAMPLES = 100


def diagnose(
    connection: Connection,
    stream: str,
    application: str,
    *,
    roles: Sequence[str] = (),
    samples: int = DEFAULT_SAMPLES,
    clock: Clock | None = None,
    sleep: Callable[[float], None] | None = None,
) -> Report:
    """Examine a stream and the lease table of an application. Nothing is changed.

    A probe that fails becomes a finding; only invalid arguments raise an error.

    Args:
        connection: Where the calls go.
        stream: Name or ARN of the stream.
        application: Name of the application and of its lease table.
        roles: Intended roles of the credentials: ``consumer``, ``producer``, ``admin``. Denied actions of these roles are
            red, and other roles are not tried. By default, all roles are tried, and only denied actions of a consumer are red.
        samples: Maximum number of open shards from which records are read, 0 to 100. Each shard costs four calls, of which
            one or two are reads of the shard (of the five per second that all its polling consumers share).
        clock: Clock of this machine, for tests.
        sleep: Called with the seconds before a call is repeated, for tests.

    Raises:
        ConfigError: If an argument is out of range.
    """
    if not 0 <= samples <= MAX_SAMPLES:
        raise ConfigError("samples", samples, f"a number from 0 to {MAX_SAMPLES}")
    unknown = [role for role in roles if role not in ROLES]
    if unknown:
        raise ConfigError("roles", unknown[0], f"one of {', '.join(ROLES)}")
    tried = tuple(role for role in ROLES if not roles or role in roles)
    probes = Probes(
        connection,
        StreamId.parse(stream),
        application,
        roles=tried,
        samples=samples,
        clock=clock,
        sleep=sleep,
    )
    facts = probes.collect(tuple(roles) or ("consumer",))
    return Report(stream=stream, application=application, findings=judge(facts), calls=probes.calls)
