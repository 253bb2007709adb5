"""What `make release` refuses; a whole release is made by `make release` itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kinesis_sdk import __version__
from tools import release


@pytest.mark.parametrize(
    ("old", "new", "may"),
    [
        ("0.1.0", "0.1.1", False),
        ("0.1.0", "0.2.0", True),
        ("0.9.3", "1.0.0", True),
        ("1.2.0", "1.3.0", False),
        ("1.2.0", "2.0.0", True),
        ("1.2.0", "1.2.1", False),
        ("0.2.0", "0.2.1rc1", False),
    ],
)
def test_the_number_says_whether_names_may_go(old: str, new: str, may: bool) -> None:
    assert release.may_break(old, new) is may


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the files that are checked, ready for the present version."""
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "FILE", tmp_path / "tools" / "public_surface.txt")
    monkeypatch.setattr(release, "surface", lambda: ["a.f(x)"])
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "public_surface.txt").write_text("a.f(x)\n")
    (tmp_path / "CHANGELOG.md").write_text(f"## [Unreleased]\n\n## [{__version__}] - 2026-11-26\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.email", "tests@example.com")
    git(tmp_path, "config", "user.name", "tests")
    commit(tmp_path)
    return tmp_path


def git(tree: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=tree, check=True, capture_output=True)


def commit(tree: Path) -> None:
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "tree")


def test_a_tree_that_is_ready_passes(tree: Path) -> None:
    release.check(__version__)
    git(tree, "tag", f"v{__version__}")
    release.check(__version__)


def test_each_thing_that_is_not_ready_is_named(tree: Path) -> None:
    with pytest.raises(release.NotReadyError, match="three numbers"):
        release.check("1.0")
    with pytest.raises(release.NotReadyError, match=r"_version\.py says"):
        release.check("99.0.0")
    (tree / "new").touch()
    with pytest.raises(release.NotReadyError, match="commit these first"):
        release.check(__version__)
    commit(tree)
    (tree / "CHANGELOG.md").write_text("## [Unreleased]\n")
    commit(tree)
    with pytest.raises(release.NotReadyError, match=r"CHANGELOG\.md has no heading"):
        release.check(__version__)


def test_a_surface_that_is_not_recorded_is_refused(tree: Path) -> None:
    (tree / "tools" / "public_surface.txt").write_text("a.g(x)\n")
    commit(tree)
    with pytest.raises(release.NotReadyError, match="make surface"):
        release.check(__version__)


def test_a_version_with_a_small_step_breaks_nothing(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "tools" / "public_surface.txt").write_text("a.f(x)\na.g(x)\n")
    commit(tree)
    first, second, _ = __version__.split(".")
    git(tree, "tag", f"v{first}.{second}.99")
    (tree / "tools" / "public_surface.txt").write_text("a.f(x)\n")
    commit(tree)
    with pytest.raises(release.NotReadyError, match=r"(?s)must not break .*a\.g is gone"):
        release.check(__version__)


def test_one_command_publishes_and_uploads_only_behind_a_pushed_tag(tree: Path) -> None:
    built = [
        tree / "dist" / name for name in ("kinesis_sdk-0.1.0.tar.gz", "kinesis_sdk-0.1.0-py3-none-any.whl")
    ]
    tag, push, upload = release.publishing("0.1.0", built).split(" && ")
    assert (tag, push) == ("git tag --sign v0.1.0", "git push origin v0.1.0")
    assert upload == "twine upload dist/kinesis_sdk-0.1.0.tar.gz dist/kinesis_sdk-0.1.0-py3-none-any.whl"


def test_the_tag_of_another_commit_is_refused(tree: Path) -> None:
    git(tree, "tag", f"v{__version__}")
    (tree / "new").touch()
    commit(tree)
    with pytest.raises(release.NotReadyError, match="is on another commit"):
        release.check(__version__)
