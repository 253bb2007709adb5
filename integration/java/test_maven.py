"""What comes from Maven is exactly what a lock file says."""

from __future__ import annotations

import hashlib

import pytest

from integration.java import install, maven


def lock_file(folder, *names):
    """A lock file, and a folder of jars with what it wants."""
    jars = folder / "jars"
    jars.mkdir()
    lines = []
    for name in names:
        (jars / f"{name}-1.0.jar").write_bytes(name.encode())
        lines.append(f"group:{name}:1.0 {hashlib.sha256(name.encode()).hexdigest()}")
    return maven.read_lock("\n".join(["# a comment", "", *lines])), jars


def test_a_jar_with_other_bytes_is_refused(tmp_path):
    artifacts, jars = lock_file(tmp_path, "a", "b")
    (jars / "b-1.0.jar").write_bytes(b"other")
    with pytest.raises(RuntimeError, match=r"b-1\.0\.jar has the hash"):
        maven._check(artifacts, jars)


@pytest.mark.parametrize("number", [0, 1])
def test_a_jar_too_few_or_too_many_is_refused(tmp_path, number):
    artifacts, jars = lock_file(tmp_path, "a", "b")
    if number:
        (jars / "c-1.0.jar").write_bytes(b"c")
    else:
        (jars / "b-1.0.jar").unlink()
    with pytest.raises(RuntimeError, match=r"other jars than the lock file names: \['[bc]-1\.0\.jar'\]"):
        maven._check(artifacts, jars)


@pytest.mark.parametrize("version", install.MAVEN_VERSIONS)
def test_the_lock_files_pin_the_kcl_of_their_name(version):
    artifacts = maven.read_lock(install.lock(version).read_text())
    assert [one.version for one in artifacts if one.artifact == "amazon-kinesis-client"] == [version]
    assert len({(one.group, one.artifact) for one in artifacts}) == len(artifacts) > 50
