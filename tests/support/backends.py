"""A fixture that runs a test on each back-end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.ops import BACKEND


@pytest.fixture(params=["cpu", "dali"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a test on each back-end that can be had without a GPU: support.ops and support.loading compile for it."""
    name: str = request.param
    token = BACKEND.set(name)
    yield name
    BACKEND.reset(token)
