"""The table of changes fits the functions that plan them, and the commands."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from kinesis_sdk.admin.changes.operations import OPERATIONS, Operation, Parameter
from kinesis_sdk.cli.steer import change_command
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from tests.cli.commands import ALL


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda one: one.verb)
def test_each_operation_has_a_function_with_its_parameters_and_a_command(operation: Operation) -> None:
    module, _, name = operation.home.partition(":")
    function = getattr(import_module(f"kinesis_sdk.admin.changes.{module}"), name)
    desk, *parameters = inspect.signature(function).parameters.values()
    assert desk.name == "desk"
    assert [one.name for one in parameters] == [one.name for one in operation.parameters]
    for mine, its in zip(operation.parameters, parameters, strict=True):
        # A flag and a list that are not given have a value all the same.
        assert mine.required <= (its.default is its.empty or mine.name == "worker"), mine.name
    command = ALL[f"{operation.group} {operation.verb}"]
    offered = {one.name: one for one in command.params}
    assert all(offered[one.name].required == one.required for one in operation.parameters)
    assert ("wait" in offered) == bool(operation.wait)
    assert f"kinesis-sdk {operation.group} {operation.verb} billing" in (command.help or ""), "an example"


def test_a_parameter_reads_what_a_form_gives() -> None:
    record = next(one for one in OPERATIONS["skip-record"].parameters if one.name == "record")
    assert record.value_of("at:495/3", now=0.0) == ExtendedSequenceNumber("495", 3)
    assert record.value_of("", now=0.0) is None
    shards = OPERATIONS["release"].parameters[0]
    assert shards.value_of(["0", "1"], now=0.0) == ("0", "1")
    assert shards.value_of("0", now=0.0) == (), "one text is no list"
    with pytest.raises(ConfigError, match=r"^to=7 "):
        Parameter(name="worker", option="to", expected="the id of a worker").value_of(7, now=0.0)


def test_an_operation_that_is_not_in_the_table_has_no_command() -> None:
    with pytest.raises(KeyError):
        change_command("drop", text="")
