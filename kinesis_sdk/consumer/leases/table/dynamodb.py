"""The lease table in DynamoDB: each operation is one conditional request.

Rows are changed only by update expressions, which keep unknown attributes. Cost per lease with the default failover time of
10 s: 0.15 writes per second for renewals (fewer if checkpoints replace them), and 1/20 read unit per scan (eventually
consistent, ten rows of about 400 bytes in a 4 KiB half unit).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, cast

from kinesis_sdk.common.aws import DynamoDBClient, call_with_retries, translate_errors
from kinesis_sdk.common.errors import (
    AwsError,
    ConditionFailedError,
    ConfigError,
    EndpointUnreachableError,
    ProtocolError,
    ResourceNotFoundError,
    TransientAwsError,
)
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.paging import PageLimit
from kinesis_sdk.common.sequence import SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.common.text import printable
from kinesis_sdk.common.transport import Transport
from kinesis_sdk.common.truncated_responses import reject_truncated_responses
from kinesis_sdk.consumer.leases.table import attributes, transitions
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest
from kinesis_sdk.consumer.leases.table.lease import (
    Item,
    Lease,
    checkpoint_attributes,
    entity_type_of,
    is_lease_item,
    lease_from_item,
    lease_to_item,
    processed_until_attributes,
    range_attributes,
)
from kinesis_sdk.consumer.leases.table.store import TableScan
from kinesis_sdk.consumer.leases.table.transitions import Conflict

OWNER_INDEX = "LeaseOwnerToLeaseKeyIndex"
"""Index of KCL 3. Created with the table, because adding it later takes DynamoDB many minutes."""

TABLE_WAIT = 600.0
"""Maximum seconds to wait for a new table, as in the KCL, and for a DynamoDB that does not respond yet."""

MAX_PAGES = 10_000
"""Maximum pages of a scan. A page holds 1 MiB, so this limits the table to 10 GB, or about 20 million leases."""

_MIN_POLL_INTERVAL, _MAX_POLL_INTERVAL = 0.2, 2.0

_NO_HANDOFF = ("attribute_not_exists(#{})", attributes.CHECKPOINT_OWNER, None)
"""Second condition of a renewal, from KCL 3: no handoff was requested in between."""

_LOGGER = FieldLogger(logging.getLogger(__name__))


class DynamoDBLeaseStore:
    """A `LeaseStore` in one DynamoDB table, which Java KCLs of every version can share.

    Args:
        client: boto3 DynamoDB client or a compatible object. The client should make one attempt per call; the SDK
            retries.
        table_name: Name of the table; the KCL's default is the application's name.
        billing_mode: ``PAY_PER_REQUEST`` or ``PROVISIONED``, when the table is created.
        read_capacity: Read units of a provisioned table.
        write_capacity: Write units of a provisioned table.
        deletion_protection: Whether to protect a newly created table from deletion.
        tags: Tags of a newly created table.
        point_in_time_recovery: Whether to switch on point-in-time recovery at the start if it is off (DynamoDB cannot
            create a table with it). Recovery is never switched off.
        sleep: Replaces `time.sleep` in waits and retries, for tests.
        monotonic: Replaces `time.monotonic` in waits, for tests.
        worker_id: Id of the worker, for the log.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        table_name: str,
        *,
        billing_mode: str = "PAY_PER_REQUEST",
        read_capacity: int = 10,
        write_capacity: int = 10,
        deletion_protection: bool = False,
        tags: Mapping[str, str] | None = None,
        point_in_time_recovery: bool = False,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        worker_id: str | None = None,
    ) -> None:
        self._fields = log_fields(worker=worker_id)
        reject_truncated_responses(client)  # the client may be the user's
        self._client = cast("DynamoDBClient", Transport(client))
        self.table_name = table_name
        self._billing_mode = billing_mode
        self._capacity = {"ReadCapacityUnits": read_capacity, "WriteCapacityUnits": write_capacity}
        self._deletion_protection = deletion_protection
        self._tags = dict(tags or {})
        self._recovery = point_in_time_recovery
        self._sleep = sleep
        self._monotonic = monotonic

    # The table

    def ensure_ready(self) -> None:
        """Create the table with its index if it is missing, in one call, and wait until it is ACTIVE.

        Raises:
            ConfigError: If a table of this name exists with another key.
            AwsError: At once, if permissions are missing, credentials are wrong, or no server listens at the endpoint.
            TransientAwsError: If the table is not ACTIVE, or DynamoDB does not respond, after `TABLE_WAIT` seconds.
        """
        deadline = self._monotonic() + TABLE_WAIT
        pause = _MIN_POLL_INTERVAL
        creating = False
        while True:
            try:
                table = self._describe()
            except TransientAwsError as error:
                if isinstance(error, EndpointUnreachableError) or self._monotonic() >= deadline:
                    raise
                # Calls have the short time limit of renewals. A DynamoDB that is only slow now can serve the worker later.
                _LOGGER.warning(
                    "lease table %s: still waiting for DynamoDB: %s",
                    self.table_name,
                    error,
                    extra=self._fields,
                )
                continue
            if table is None:
                if not creating:
                    status = self._create()
                    creating = status is not None
                    if status == "ACTIVE":
                        continue  # DynamoDB Local creates tables at once
            elif table.get("TableStatus", "ACTIVE") in ("ACTIVE", "UPDATING"):
                self._check_key(table)
                if self._recovery:
                    self._switch_recovery_on()
                return
            if self._monotonic() >= deadline:
                raise TransientAwsError(
                    f"lease table {self.table_name} is not ACTIVE after {TABLE_WAIT:g} s",
                    operation="DescribeTable",
                    code="TableNotActive",
                )
            self._sleep(pause)
            pause = min(pause * 1.5, _MAX_POLL_INTERVAL)

    def _describe(self) -> Mapping[str, Any] | None:
        try:
            response = call_with_retries(
                lambda: self._client.describe_table(TableName=self.table_name),
                operation="DescribeTable",
                client=self._client,
                sleep=self._sleep,
            )
        except ResourceNotFoundError:
            return None
        table: Mapping[str, Any] = response["Table"]
        return table

    def _switch_recovery_on(self) -> None:
        """Switch point-in-time recovery on if it is off."""
        # Checked at every start: the worker that created the table may have died before this call.
        response = call_with_retries(
            lambda: self._client.describe_continuous_backups(TableName=self.table_name),
            operation="DescribeContinuousBackups",
            client=self._client,
            sleep=self._sleep,
        )
        state = response["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
        if state.get("PointInTimeRecoveryStatus") == "ENABLED":
            return
        call_with_retries(
            lambda: self._client.update_continuous_backups(
                TableName=self.table_name,
                PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
            ),
            operation="UpdateContinuousBackups",
            client=self._client,
            sleep=self._sleep,
        )
        _LOGGER.info("lease table %s: point-in-time recovery is on", self.table_name, extra=self._fields)

    def _create(self) -> str | None:
        """Create the table and return its status; None if the call must be repeated."""
        request: dict[str, Any] = {
            "TableName": self.table_name,
            "AttributeDefinitions": [
                {"AttributeName": attributes.LEASE_KEY, "AttributeType": "S"},
                {"AttributeName": attributes.LEASE_OWNER, "AttributeType": "S"},
            ],
            "KeySchema": [{"AttributeName": attributes.LEASE_KEY, "KeyType": "HASH"}],
            "BillingMode": self._billing_mode,
            "DeletionProtectionEnabled": self._deletion_protection,
        }
        index: dict[str, Any] = {
            "IndexName": OWNER_INDEX,
            "KeySchema": [
                {"AttributeName": attributes.LEASE_OWNER, "KeyType": "HASH"},
                {"AttributeName": attributes.LEASE_KEY, "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
        if self._billing_mode == "PROVISIONED":
            request["ProvisionedThroughput"] = index["ProvisionedThroughput"] = dict(self._capacity)
        request["GlobalSecondaryIndexes"] = [index]
        if self._tags:
            request["Tags"] = [{"Key": key, "Value": value} for key, value in self._tags.items()]
        try:
            with translate_errors("CreateTable", self._client):
                response = self._client.create_table(**request)
        except AwsError as error:
            if error.code == "ResourceInUseException":
                return "CREATING"  # another worker was faster
            if not error.retryable:
                raise
            _LOGGER.warning(
                "lease table %s: creating it failed, retrying: %s", self.table_name, error, extra=self._fields
            )
            return None
        _LOGGER.info("lease table %s: created", self.table_name, extra=self._fields)
        status: str = response["TableDescription"].get("TableStatus", "CREATING")
        return status

    def _check_key(self, table: Mapping[str, Any]) -> None:
        keys = [(key["AttributeName"], key["KeyType"]) for key in table.get("KeySchema", ())]
        if keys != [(attributes.LEASE_KEY, "HASH")]:
            raise ConfigError(
                "table_name", self.table_name, "a table whose only key is leaseKey (a lease table)"
            )

    # Reading

    def scan(self, *, consistent: bool = False) -> TableScan:
        """Scan all pages of the table.

        Args:
            consistent: Whether to use strongly consistent reads, which cost twice as much.

        Raises:
            ProtocolError: If DynamoDB repeats a page, omits the items, or returns more than `MAX_PAGES` pages.
        """
        leases: list[Lease] = []
        unreadable: dict[str, str] = {}
        others: dict[str, Item] = {}
        request: dict[str, Any] = {"TableName": self.table_name, "ConsistentRead": consistent}
        # A broken endpoint that always returns one more page must not keep a worker from starting or renewing.
        limit = PageLimit(f"Scan of {self.table_name}", MAX_PAGES)
        while True:
            page = call_with_retries(
                lambda: self._client.scan(**request),
                operation="Scan",
                client=self._client,
                timeout=5.0,
                attempts=4,
                sleep=self._sleep,
            )
            if "Items" not in page:
                # Taken as an empty table, it would restart the application at its initial position.
                raise ProtocolError(f"Scan of {self.table_name}: the response has no Items")
            for item in page["Items"]:
                if not is_lease_item(item):
                    others[_key_of(item)] = item
                    continue
                try:
                    leases.append(lease_from_item(item))
                except ValueError as error:
                    unreadable[_key_of(item)] = str(error)
            last = page.get("LastEvaluatedKey")
            if not last:
                return TableScan(leases=leases, unreadable=unreadable, others=others)
            limit.check(last)
            request["ExclusiveStartKey"] = last

    def list(self, *, consistent: bool = False) -> list[Lease]:
        """Return all leases, without other items and unreadable rows.

        Args:
            consistent: Whether to use strongly consistent reads, which cost twice as much.
        """
        return self.scan(consistent=consistent).leases

    def get(self, lease_key: str) -> Lease | None:
        """Read one lease, consistently.

        Raises:
            ProtocolError: If the item is not a readable lease. The lease must not count as absent: a shard whose parent has no
                lease is read at once.
        """
        item = self._item(lease_key)
        if not item:
            return None
        row = f"lease table {self.table_name}: row {lease_key}"
        if not is_lease_item(item):
            raise ProtocolError(f"{row} is not a lease: its entityType is {entity_type_of(item)}")
        try:
            return lease_from_item(item)
        except ValueError as error:
            raise ProtocolError(f"{row} cannot be read: {error}") from error

    def _item(self, lease_key: str) -> Mapping[str, Any] | None:
        with translate_errors("GetItem", self._client):
            response = self._client.get_item(
                TableName=self.table_name, Key={attributes.LEASE_KEY: {"S": lease_key}}, ConsistentRead=True
            )
        item: Mapping[str, Any] | None = response.get("Item")
        return item

    def _current(self, error: ConditionFailedError, lease_key: str) -> Lease | None:
        """Return the row that made a write fail. Old emulators do not return it with the error."""
        item = error.item or self._item(lease_key)
        return _readable(item) if item else None

    # Writing

    def create_if_absent(self, lease: Lease) -> bool:
        """Put a new row, unless its key exists."""
        try:
            with translate_errors("PutItem", self._client):
                self._client.put_item(
                    TableName=self.table_name,
                    Item=lease_to_item(lease),
                    ConditionExpression="attribute_not_exists(#key)",
                    ExpressionAttributeNames={"#key": attributes.LEASE_KEY},
                )
        except ConditionFailedError:
            return False
        return True

    def take(self, lease: Lease, owner: str) -> Lease | Conflict:
        """Take the lease for ``owner``."""
        wanted = transitions.taken(lease, owner)
        changes = {
            attributes.LEASE_OWNER: {"S": owner},
            attributes.OWNER_SWITCHES: {"N": str(wanted.owner_switches)},
            attributes.HANDOFF_OWNER: {"S": owner},
        }
        removed = (attributes.CHECKPOINT_OWNER, attributes.PROGRESS)
        return self._update(lease, wanted, changes, removed)

    def renew(self, lease: Lease) -> Lease | Conflict:
        """Renew the lease."""
        changes = _measurements(lease)
        conditions = () if lease.in_handoff else (_NO_HANDOFF,)
        return self._update(lease, transitions.renewed(lease), changes, (), conditions, return_row=False)

    def checkpoint(
        self, lease: Lease, checkpoint: ExtendedSequenceNumber, state: bytes | None = None
    ) -> Lease | Conflict:
        """Store a position."""
        changes = {
            **checkpoint_attributes(checkpoint),
            attributes.OWNER_SWITCHES: {"N": "0"},
            # A checkpoint counts as a renewal, and the KCL writes the throughput with each renewal.
            **_measurements(lease),
        }
        removed: tuple[str, ...] = (attributes.INITIAL_TIMESTAMP,)
        if state is None:
            removed += (
                attributes.PENDING_CHECKPOINT,
                attributes.PENDING_CHECKPOINT_SUB,
                attributes.PENDING_CHECKPOINT_STATE,
            )
        else:
            changes |= _pending(checkpoint, state)
        return self._update(lease, transitions.checkpointed(lease, checkpoint, state), changes, removed)

    def prepare(
        self, lease: Lease, checkpoint: ExtendedSequenceNumber, state: bytes | None = None
    ) -> Lease | Conflict:
        """Store a pending position."""
        changes: dict[str, Any] = {**_pending(checkpoint, state), attributes.OWNER_SWITCHES: {"N": "0"}}
        removed = (attributes.PENDING_CHECKPOINT_STATE,) if state is None else ()
        return self._update(lease, transitions.prepared(lease, checkpoint, state), changes, removed)

    def pin(self, lease: Lease, timestamp_millis: int) -> Lease | Conflict:
        """Store the instant of a resolved sentinel position."""
        changes = {attributes.INITIAL_TIMESTAMP: {"N": str(timestamp_millis)}}
        return self._update(lease, transitions.pinned(lease, timestamp_millis), changes, ())

    def mark_processed(self, lease: Lease, millis: int) -> Lease | Conflict:
        """Store that every record from before a time is processed."""
        wanted = transitions.marked_processed(lease, millis)
        assert wanted.processed_until is not None
        return self._update(lease, wanted, processed_until_attributes(wanted.processed_until), ())

    def release(self, lease: Lease) -> Lease | Conflict:
        """Remove the owner."""
        removed = (attributes.LEASE_OWNER, attributes.CHECKPOINT_OWNER, attributes.HANDOFF_OWNER)
        conditions = () if lease.in_handoff else (_NO_HANDOFF,)
        return self._update(lease, transitions.released(lease), {}, removed, conditions, return_row=False)

    def request_handoff(self, lease: Lease, owner: str) -> Lease | Conflict:
        """Request a handoff from the lease's owner."""
        try:
            with translate_errors("UpdateItem", self._client):
                response = self._client.update_item(
                    TableName=self.table_name,
                    Key={attributes.LEASE_KEY: {"S": lease.lease_key}},
                    UpdateExpression="SET #owner = :new, #marker = :old, #supports = :new",
                    ConditionExpression="#owner = :old AND attribute_not_exists(#marker)",
                    ExpressionAttributeNames={
                        "#owner": attributes.LEASE_OWNER,
                        "#marker": attributes.CHECKPOINT_OWNER,
                        "#supports": attributes.HANDOFF_OWNER,
                    },
                    ExpressionAttributeValues={":new": {"S": owner}, ":old": {"S": lease.owner or ""}},
                    ReturnValues="ALL_NEW",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except ConditionFailedError as error:
            current = self._current(error, lease.lease_key)
            if current is not None and transitions.is_requested_by(current, lease, owner):
                return current
            return Conflict(current)
        return self._row_of(response, transitions.handoff_requested(lease, owner))

    def complete_handoff(self, lease: Lease) -> Lease | Conflict:
        """Hand the lease off to its next owner."""
        removed = (attributes.CHECKPOINT_OWNER, attributes.HANDOFF_OWNER)
        conditions = (
            ("#{} = :{}", attributes.LEASE_OWNER, lease.owner),
            ("#{} = :{}", attributes.CHECKPOINT_OWNER, lease.checkpoint_owner),
        )
        return self._update(lease, transitions.handed_off(lease), {}, removed, conditions, return_row=False)

    def set_child_shard_ids(self, lease_key: str, child_shard_ids: Iterable[str]) -> bool:
        """Store the children of an ended shard; the counter stays."""
        return self._set(lease_key, {attributes.CHILD_SHARD_IDS: {"SS": sorted(child_shard_ids)}})

    def set_hash_key_range(self, lease_key: str, hash_key_range: HashKeyRange) -> bool:
        """Store the range of a shard; the counter stays."""
        return self._set(lease_key, range_attributes(hash_key_range))

    def put_standby_heartbeat(self, lease_key: str, worker_id: str, heartbeat: int | None) -> bool:
        """Store or remove the standby heartbeat of a worker."""
        name = attributes.STANDBY + worker_id
        return self._set(lease_key, {name: None if heartbeat is None else {"N": str(heartbeat)}})

    def set_drain(self, lease_key: str, worker_id: str, on: bool) -> bool:
        """Set or remove the mark that makes a worker drain."""
        return self._set(lease_key, {attributes.DRAIN + worker_id: {"N": "1"} if on else None})

    def set_pin(self, lease_key: str, worker_id: str | None) -> bool:
        """Store the worker to which this lease is pinned."""
        return self._set(lease_key, {attributes.PINNED_TO: {"S": worker_id} if worker_id else None})

    def set_handler_request(
        self, lease_key: str, request: HandlerRequest | None, *, instead_of: HandlerRequest | None = None
    ) -> bool:
        """Store an operator's request to the holder."""
        value = None if request is None else {"S": request.to_text()}
        name = attributes.HANDLER_REQUEST
        if instead_of is None:
            return self._set(lease_key, {name: value})
        return self._set(lease_key, {name: value}, demanded={name: {"S": instead_of.to_text()}})

    def delete(self, lease_key: str, *, unowned: Lease | None = None, finished: bool = False) -> bool:
        """Remove a lease."""
        request: dict[str, Any] = {
            "TableName": self.table_name,
            "Key": {attributes.LEASE_KEY: {"S": lease_key}},
        }
        demanded: dict[str, dict[str, str]] = {}
        if unowned is not None:
            demanded[attributes.LEASE_COUNTER] = {"N": str(unowned.counter)}
        if finished:
            demanded[attributes.CHECKPOINT] = {"S": SHARD_END}
        if demanded:
            # An absent row counts as success: the response to an earlier attempt may have been lost.
            conditions = " AND ".join(f"#d{n} = :d{n}" for n in range(len(demanded)))
            request["ConditionExpression"] = f"attribute_not_exists(#key) OR ({conditions})"
            request["ExpressionAttributeNames"] = {
                "#key": attributes.LEASE_KEY,
                **{f"#d{n}": name for n, name in enumerate(demanded)},
            }
            request["ExpressionAttributeValues"] = {
                f":d{n}": value for n, value in enumerate(demanded.values())
            }
        try:
            with translate_errors("DeleteItem", self._client):
                self._client.delete_item(**request)
        except ConditionFailedError:
            return False
        return True

    def _set(
        self,
        lease_key: str,
        changes: Mapping[str, Any],
        *,
        demanded: Mapping[str, Any] = MappingProxyType({}),
    ) -> bool:
        """Set attributes of an existing row if its ``demanded`` attributes match; return whether they do. None removes an attribute."""
        names = {f"#s{position}": name for position, name in enumerate(changes)}
        values = {f":s{n}": value for n, value in enumerate(changes.values()) if value is not None}
        sets = ", ".join(f"#s{n} = :s{n}" for n in range(len(changes)) if f":s{n}" in values)
        removes = ", ".join(f"#s{n}" for n in range(len(changes)) if f":s{n}" not in values)
        conditions = ["attribute_exists(#key)"]  # otherwise the update would create a deleted row again
        for n, (name, value) in enumerate(demanded.items()):
            names[f"#d{n}"], values[f":d{n}"] = name, value
            conditions.append(f"#d{n} = :d{n}")
        request: dict[str, Any] = {"ExpressionAttributeValues": values} if values else {}
        try:
            with translate_errors("UpdateItem", self._client):
                self._client.update_item(
                    TableName=self.table_name,
                    Key={attributes.LEASE_KEY: {"S": lease_key}},
                    UpdateExpression=" ".join(
                        f"{verb} {what}" for verb, what in (("SET", sets), ("REMOVE", removes)) if what
                    ),
                    ConditionExpression=" AND ".join(conditions),
                    ExpressionAttributeNames={"#key": attributes.LEASE_KEY, **names},
                    **request,
                )
        except ConditionFailedError:
            return False
        return True

    def _update(
        self,
        seen: Lease,
        wanted: Lease,
        changes: Mapping[str, Any],
        removed: tuple[str, ...],
        conditions: Iterable[tuple[str, str, str | None]] = (),
        *,
        return_row: bool = True,
    ) -> Lease | Conflict:
        """Update a row and increment its counter if the counter is still the one in ``seen`` and ``conditions`` hold.

        A condition is a template, an attribute and a value (None if the template needs none). With ``return_row``, DynamoDB returns the
        new row at no cost; it shows a handoff request that the conditions allow.
        """
        names = {"#c": attributes.LEASE_COUNTER}
        values: dict[str, Any] = {":seen": {"N": str(seen.counter)}, ":next": {"N": str(wanted.counter)}}
        sets = ["#c = :next"]
        for position, (name, value) in enumerate(changes.items()):
            names[f"#s{position}"] = name
            values[f":s{position}"] = value
            sets.append(f"#s{position} = :s{position}")
        expression = "SET " + ", ".join(sets)
        if removed:
            for position, name in enumerate(removed):
                names[f"#r{position}"] = name
            expression += " REMOVE " + ", ".join(f"#r{position}" for position in range(len(removed)))
        demanded = ["#c = :seen"]
        for position, (template, name, text) in enumerate(conditions):
            names[f"#d{position}"] = name
            if text is not None:
                values[f":d{position}"] = {"S": text}
            demanded.append(template.format(f"d{position}", f"d{position}"))
        try:
            with translate_errors("UpdateItem", self._client):
                response = self._client.update_item(
                    TableName=self.table_name,
                    Key={attributes.LEASE_KEY: {"S": seen.lease_key}},
                    UpdateExpression=expression,
                    ConditionExpression=" AND ".join(demanded),
                    ExpressionAttributeNames=names,
                    ExpressionAttributeValues=values,
                    ReturnValues="ALL_NEW" if return_row else "NONE",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except ConditionFailedError as error:
            current = self._current(error, seen.lease_key)
            return (
                current
                if current is not None and transitions.has_effect_of(current, wanted)
                else Conflict(current)
            )
        return self._row_of(response, wanted) if return_row else wanted

    def _row_of(self, response: Mapping[str, Any], wanted: Lease) -> Lease:
        item = response.get("Attributes")
        return (_readable(item) if item else None) or wanted


def _key_of(item: Item) -> str:
    key = item.get(attributes.LEASE_KEY)
    return printable(str(key["S"] if isinstance(key, Mapping) and "S" in key else key))


def _readable(item: Item) -> Lease | None:
    """Return the lease of an item, or None if it is not a readable lease; the next scan reports why."""
    try:
        return lease_from_item(item) if is_lease_item(item) else None
    except ValueError:
        return None


def _measurements(lease: Lease) -> dict[str, Any]:
    """Return the attributes that a heartbeat may change: throughput and progress."""
    result: dict[str, Any] = {}
    if lease.throughput_kbps is not None:
        result[attributes.THROUGHPUT_KBPS] = {"N": format(lease.throughput_kbps, "f")}
    if lease.progress is not None:
        result[attributes.PROGRESS] = {"S": lease.progress.to_text()}
    return result


def _pending(checkpoint: ExtendedSequenceNumber, state: bytes | None) -> dict[str, Any]:
    """Return the attributes of a pending position; without a state, its attribute is absent."""
    changes: dict[str, Any] = {
        attributes.PENDING_CHECKPOINT: {"S": checkpoint.sequence_number},
        attributes.PENDING_CHECKPOINT_SUB: {"N": str(checkpoint.sub_sequence_number)},
    }
    return changes if state is None else {**changes, attributes.PENDING_CHECKPOINT_STATE: {"B": state}}
