"""Rejected values: what messages show of them, and how large integers may be."""

from __future__ import annotations

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.multilang.settings import parse_settings


@pytest.mark.parametrize("key", ["timeoutInSeconds", "regionName"])
def test_a_password_under_a_wrong_key_is_not_shown(key: str) -> None:
    text = f"applicationName=a\nstreamName=s\nexecutableName=x\n{key}=http://u:SECRET@host/"
    with pytest.raises(ConfigError, match=f"{key}=") as caught:
        parse_settings(text)
    assert "SECRET" not in str(caught.value)
    assert "http://host/" in str(caught.value)


@pytest.mark.parametrize(
    "url", ["postgresql+psycopg://u:p@SECRET@h/x", "postgresql+psycopg://u:p@SECRET@h:5432/x"]
)
def test_a_password_with_an_unescaped_at_sign_is_refused_and_not_shown(url: str) -> None:
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")
    from kinesis_sdk.consumer.sql.engines import open_engine

    with pytest.raises(ConfigError, match="%40 for each @") as caught:
        open_engine("sink", url)
    assert "SECRET" not in str(caught.value)
