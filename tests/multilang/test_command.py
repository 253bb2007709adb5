from __future__ import annotations

from pathlib import Path

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.multilang.command import check_command, split_command


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("app.py", ["app.py"]),
        ("python3  -u app.py ", ["python3", "-u", "app.py"]),
        (" node sample.js", ["node", "sample.js"]),
        ("a\tb $HOME *.py", ["a\tb", "$HOME", "*.py"]),  # as the Java daemon: only spaces have a meaning
        ('"/opt/my app/run" --name "x y"', ["/opt/my app/run", "--name", "x y"]),
        ("/opt/my\\ app/run 'a b'", ["/opt/my app/run", "a b"]),
    ],
)
def test_words_of_a_command(value: str, words: list[str]) -> None:
    assert split_command(value) == words


@pytest.mark.parametrize(
    ("value", "problem"), [("", "command"), ("  ", "command"), ('"', "closed quotes"), ("'' x", "command")]
)
def test_no_command(value: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"executableName.*{problem}"):
        split_command(value)


def test_a_program_must_exist_and_be_executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "app.sh"
    script.write_text("true\n")
    check_command(["sh"])
    with pytest.raises(ConfigError, match="not found in PATH"):
        check_command(["no-such-program"])
    with pytest.raises(ConfigError, match=f"not found below {tmp_path}"):
        check_command(["./nothing.sh"])
    with pytest.raises(ConfigError, match="not found at this path"):
        check_command(["/no/such/program"])
    with pytest.raises(ConfigError, match=r"chmod \+x ./app.sh"):
        check_command(["./app.sh"])
    script.chmod(0o755)
    check_command(["./app.sh"])


def test_a_file_in_the_current_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample of amazon_kclpy says ``executableName = sample_kclpy_app.py``."""
    monkeypatch.chdir(tmp_path)
    for name, start in [
        ("my_sample_app.py", "python3 my_sample_app.py"),
        ("my_sample_app", "./my_sample_app"),
    ]:
        (tmp_path / name).touch()
        with pytest.raises(ConfigError, match=f"only a file in the current directory; write {start}$"):
            check_command([name])
