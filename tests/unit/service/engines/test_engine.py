"""How many threads fit is arithmetic; what an engine cannot do, it says before it starts anything."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import MissingDependencyError, SpecError
from stoker_service.engines import service
from stoker_service.engines.engine import threads_that_fit
from stoker_service.engines.ray import ADDRESS_VARIABLE, RayFleet
from stoker_service.options import UpOptions


@pytest.mark.parametrize(
    "cores, num_workers, expected",
    [
        ([8.0], 1, 8),
        ([8.0], 3, 2),
        ([3.0, 3.0], 3, 1),  # two of two threads, and no room for the third
        ([4.0, 16.0], 5, 4),
        ([4.0, 16.0], 6, 3),
        ([2.0], 5, 1),
        ([0.5], 1, 1),
        ([], 2, 1),
    ],
)
def test_threads_that_fit(cores: list[float], num_workers: int, expected: int) -> None:
    assert threads_that_fit(cores, num_workers) == expected


@given(cores=st.lists(st.integers(0, 64).map(float), max_size=8), num_workers=st.integers(1, 40))
def test_one_thread_more_would_not_fit(cores: list[float], num_workers: int) -> None:
    found = threads_that_fit(cores, num_workers)

    def room(num_threads: int) -> int:
        return sum(int(number // num_threads) for number in cores)

    assert found == 1 or room(found) >= num_workers
    assert all(room(more) < num_workers for more in range(found + 1, 66))


@pytest.mark.parametrize(
    "host, expected", [("127.0.0.1", "10.0.0.7"), ("0.0.0.0", "0.0.0.0"), ("10.1.1.1", "10.1.1.1")]
)
def test_other_machines_reach_the_dispatcher(host: str, expected: str) -> None:
    """Loopback is the default of ``stoker up``, and no worker elsewhere would reach it."""
    assert service.dispatcher_host(UpOptions(host=host), "10.0.0.7") == expected


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"stoker\[ray\]"):
        RayFleet(UpOptions())


def test_ray_clients_from_outside_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through Ray's client, the dispatcher would run where no worker reaches it."""
    pytest.importorskip("ray", exc_type=ImportError)
    monkeypatch.setenv(ADDRESS_VARIABLE, "ray://10.0.0.7:10001")
    with pytest.raises(SpecError, match="on a node of the cluster"):
        RayFleet(UpOptions()).connect(1.0)
