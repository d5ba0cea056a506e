"""What the processes of a cluster printed is shown with the test that fails."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from support.cluster import Cluster
from support.streams import make_pictures


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for name, value in item.funcargs.items():
            if isinstance(value, Cluster):
                report.sections.append((f"what the processes of {name!r} wrote", value.logs()))
    return report


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    """240 small pictures."""
    return make_pictures(tmp_path_factory.mktemp("shards"))
