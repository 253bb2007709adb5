"""The KPL's program of docs/migration.md, run with the real KPL, and ours beside it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from urllib.parse import urlsplit

from integration.commands import execute
from integration.examples.support import EXAMPLES, ROOT, records_of
from integration.java import install as kcl
from integration.java import maven
from integration.java.kpl.install import KPL, LOCK
from integration.java.kpl.producer import JVM

PROGRAMS = EXAMPLES / "migration" / "kpl"
PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
HANG = 120


def test_both_programs_store_and_print_the_same(tls_stage, tmp_path):
    stage = tls_stage
    stage.kinesis.create_stream(StreamName="orders", ShardCount=2)
    jars = maven.install(LOCK)
    classes = kcl.compiled(PROGRAMS / "Before.java", jars, "kpl-before")
    shutil.copytree(PROGRAMS, tmp_path, dirs_exist_ok=True)
    url = urlsplit(stage.kinesis_url)
    with (tmp_path / "kpl.properties").open("a") as file:
        # Where the fake is; the environment says it to ours.
        for service in ("Kinesis", "Cloudwatch", "Sts"):
            file.write(f"{service}Endpoint = {url.hostname}\n{service}Port = {url.port}\n")
        file.write(f"CaCertFile = {stage.ca_file}\nTempDirectory = {tmp_path}\nLogLevel = warning\n")
    commands = (
        ["java", *JVM, "-cp", f"{classes}:{jars}/*", "Before"],
        [sys.executable, "after.py"],
    )
    printed = []
    for number, command in enumerate(commands, start=1):
        done = execute(command, cwd=tmp_path, env={**stage.environment(), "PYTHONPATH": os.fspath(ROOT)})
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        records = records_of(stage.kinesis, "orders")
        assert [(record.partition_key, bytes(record.data)) for record in records] == [
            ("customer-7", b"1")
        ] * number
        # The KPL logs to standard output as well, and a callback may run before or after the program has the result.
        shown = re.findall(r"^(?:stored|failed|shardid-\d+|true|false)$", done.stdout.lower(), re.MULTILINE)
        printed.append(sorted(shown))
    theirs, ours = printed
    assert ours == theirs
    assert [re.sub(r"-\d+", "", line) for line in theirs] == ["shardid", "stored", "true"]


def test_the_table_names_methods_of_the_kpl():
    jars = maven.install(LOCK)
    package = "software.amazon.kinesis.producer"
    classes = ("KinesisProducer", "UserRecordResult", "UserRecordFailedException", "Attempt")
    done = subprocess.run(
        ["javap", "-cp", f"{jars}/*", *(f"{package}.{name}" for name in classes)],
        check=True,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    (section,) = re.findall(r"^## From the KPL in Java\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    column = "".join(re.findall(r"^\| (.*?) \| ", section, re.MULTILINE))
    named = set(re.findall(r"(\w+)\(", column))
    assert len(named) >= 9
    for name in named:
        assert re.search(rf"\b{name}\(", done.stdout), name


def test_the_page_names_the_version_that_runs():
    assert f"KPL {KPL}" in PAGE
    assert f"KPL {KPL}" in (PROGRAMS / "Before.java").read_text()
