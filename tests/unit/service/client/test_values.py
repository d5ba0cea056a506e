"""The small decisions of a session: pauses, versions, owners, the word for what limits."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.batch.pinned import pool_for
from stoker.errors import SpecError, StokerError
from stoker_proto.v1 import control_pb2 as wire
from stoker_service import versions
from stoker_service.addresses import parse
from stoker_service.client import owners
from stoker_service.client.control import Control, JobIdentity
from stoker_service.client.pauses import pause_s
from stoker_service.client.stats import Counters, verdict
from support.fake_service import FakeDispatcher


def test_pauses_double_from_20_ms_to_half_a_second() -> None:
    longest = [max(pause_s(attempt, random.Random(seed)) for seed in range(50)) for attempt in range(12)]
    assert longest[0] <= 0.02
    assert longest[-1] <= 0.5
    assert longest == sorted(longest) or longest[-1] > 0.45
    assert min(pause_s(9, random.Random(seed)) for seed in range(50)) >= 0.25


@pytest.mark.parametrize(
    "protocol, oldest, fits", [(1, 1, True), (5, 1, True), (5, 0, False), (5, 2, False), (0, 0, False)]
)
def test_versions_fit_if_a_protocol_is_common(protocol: int, oldest: int, fits: bool) -> None:
    found = wire.Version(protocol=protocol, oldest_protocol=oldest)
    if fits:
        versions.check(found, "it")
    else:
        with pytest.raises(StokerError, match="upgrade it" if protocol < 1 else "upgrade this process"):
            versions.check(found, "it")


def test_workers_are_told_once_those_with_most_lanes_first() -> None:
    rows = [(0, "b"), (1, "a"), (2, "b")]
    found = owners.from_wire(
        wire.Assignment(
            version="v", owners=[wire.Owner(lane=lane, worker_id=name, location=name) for lane, name in rows]
        )
    )
    assert [owner.worker_id for owner in found.workers] == ["b", "a"]
    assert found.owner(3) is None


@given(st.floats(0, 100), st.floats(0, 100), st.floats(0, 100))
def test_waits_add_up(waited: float, storage: float, decode: float) -> None:
    counters = Counters()
    counters.add_wait(waited, storage, decode, is_first=False)
    assert counters.wait_s == pytest.approx(waited)
    assert min(counters.wait_read_s, counters.wait_decode_s) >= 0
    assert counters.wait_network_s >= -1e-9


@pytest.mark.parametrize(
    "wait, expected",
    [((10, 9, 0), "storage"), ((10, 1, 9), "decode"), ((10, 1, 1), "network"), ((0.01, 0, 0), "trainer")],
)
def test_the_verdict_names_the_largest_wait(wait: tuple[float, float, float], expected: str) -> None:
    counters = Counters(batches=1, between_s=10.0)
    assert verdict(Counters()) == "unknown"
    counters.add_wait(*wait, is_first=False)
    assert verdict(counters) == expected


def test_memory_that_cannot_be_pinned_is_ordinary() -> None:
    assert len(pool_for(pin_memory=True).take(1000)) == 1000


class Limited(FakeDispatcher):
    """A dispatcher that takes few lanes and small pipelines."""

    def Hello(self, request: wire.HelloRequest, context: object) -> wire.HelloResponse:  # noqa: N802  # gRPC's name
        response = super().Hello(request, context)
        response.limits.CopyFrom(wire.Limits(max_lanes=8, max_pipeline_bytes=1000))
        return response


@pytest.fixture
def limited() -> Iterator[Limited]:
    dispatcher = Limited()
    yield dispatcher
    dispatcher.stop()


@pytest.mark.parametrize(
    "num_lanes, num_bytes, text", [(9, 10, "9 lanes.*8 at most"), (8, 1001, "1001 bytes of pipeline.*1000 at")]
)
def test_limits_are_checked_at_hello(limited: Limited, num_lanes: int, num_bytes: int, text: str) -> None:
    job = JobIdentity("p", "j", num_lanes, 1, 0, False, "c", "h", num_bytes)
    control = Control(parse(limited.url), job)
    with pytest.raises(SpecError, match=text):
        control.open(5.0)
    control.close(0.0)
    assert not limited.opened
