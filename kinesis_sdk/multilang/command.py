"""The command of ``executableName``: splitting it into words, and starting it."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kinesis_sdk.common.errors import ConfigError

KEY = "executableName"


def split_command(value: str) -> list[str]:
    """Return the words of a command.

    As in the Java daemon, words are separated by spaces, and no other character is special. Only a value with a quote or a
    backslash is split as a shell does: the Java daemon could start nothing useful with it.

    Raises:
        ConfigError: If there is no word, or a quote is not closed.
    """
    if re.search(r"""["'\\]""", value):
        try:
            words = shlex.split(value)
        except ValueError as error:
            raise ConfigError(KEY, value, f"a command with closed quotes ({error})") from error
    else:
        words = [word for word in value.split(" ") if word]
    if not words or not words[0]:
        raise ConfigError(KEY, value, "the command of the child process, for example: python3 app.py")
    return words


def check_command(words: Sequence[str]) -> None:
    """Check that the program of a command exists and is executable.

    Raises:
        ConfigError: If the program is missing or not executable. The message names the program and the directories that were searched.
    """
    program = words[0]
    if shutil.which(program) is not None:
        return
    path = Path(program)
    if os.sep not in program:
        where = "in PATH"
        if path.is_file():
            start = f"python3 {program}" if path.suffix == ".py" else f".{os.sep}{program}"
            where += f", only a file in the current directory; write {start}"
    elif path.is_file():
        raise ConfigError(KEY, program, f"a file that may be executed; run chmod +x {shlex.quote(program)}")
    else:
        where = "at this path" if path.is_absolute() else f"below {Path.cwd()}"
    raise ConfigError(KEY, program, f"a program that exists; it was not found {where}")


def start(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a command with three pipes, in a session of its own.

    Signals of a terminal and signals to the process group of the daemon do not reach the child. It inherits the environment and the
    current directory, but no other open file of this process.

    Raises:
        OSError: If the command cannot be started.
    """
    try:
        return _popen(words)
    except OSError as error:
        program = shutil.which(words[0])
        if error.errno != errno.ENOEXEC or program is None:
            raise
        # A script without a line that names its interpreter: Java, like a shell, runs it with /bin/sh.
        return _popen(["/bin/sh", program, *words[1:]])


def _popen(words: Sequence[str]) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(  # noqa: S603 - the command is the user's
        list(words), stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, close_fds=True, start_new_session=True
    )
