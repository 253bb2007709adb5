"""For all tests of what the other packages share."""

from __future__ import annotations

from collections.abc import Iterator

import botocore.loaders
import pytest


@pytest.fixture(scope="package", autouse=True)
def shared_models() -> Iterator[None]:
    """Let all sessions of botocore share the models of AWS's services, which take longer to read than a test."""
    loader = botocore.loaders.create_loader()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", lambda *_: loader)
        yield
