"""Every test of an op runs on each back-end: the same sizes, windows and verdicts, and like pixels."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _on_each_backend(backend: str) -> None:
    """See the fixture ``backend``."""
