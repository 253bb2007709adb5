from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from kinesis_sdk.testing.dynamodb.reserved import RESERVED_WORDS


def test_the_list_agrees_with_another_projects() -> None:
    moto = find_spec("moto")
    if moto is None or moto.origin is None:
        pytest.skip("moto is not installed")
    path = Path(moto.origin).parent / "dynamodb/parsing/reserved_keywords.txt"
    theirs = {line.strip().lower() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()}
    assert theirs == RESERVED_WORDS
