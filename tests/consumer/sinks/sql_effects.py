"""The SQL table of effects."""

from __future__ import annotations

import pytest

sqlalchemy = pytest.importorskip("sqlalchemy")

EFFECTS = sqlalchemy.Table(
    "effects",
    sqlalchemy.MetaData(),
    sqlalchemy.Column("number", sqlalchemy.Integer, primary_key=True),
    sqlalchemy.Column("shard", sqlalchemy.Text),
    sqlalchemy.Column("record_id", sqlalchemy.Text),
    sqlalchemy.Column("data", sqlalchemy.Text),
)
