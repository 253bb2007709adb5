from __future__ import annotations

from integration.localstack.fixtures import localstack

__all__ = ["localstack"]
