"""Every test of an op runs on each back-end that can be had here: the same ids, windows, verdicts, and like pixels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.ops import BACKEND


@pytest.fixture(params=["cpu", "dali"], autouse=True)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """The back-end that :func:`support.ops.run` compiles for."""
    name: str = request.param
    token = BACKEND.set(name)
    yield name
    BACKEND.reset(token)
