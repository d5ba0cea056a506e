"""The service's measurements run from end to end; their figures mean nothing here."""

from __future__ import annotations

import contextlib
from itertools import islice

import pytest

from stoker_bench import datasets, service_gap, service_ready, service_stream
from stoker_bench.datasets import PhotoShards
from stoker_bench.peers import ours
from stoker_bench.service_gap import Setting
from stoker_bench.service_processes import Service

pytest.importorskip("skimage", reason="the photographs lie in scikit-image and scikit-learn")
pytest.importorskip("sklearn")

ROWS = 64


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> str:
    return datasets.make(PhotoShards(2, ROWS // 2), tmp_path_factory.mktemp("photographs")).pattern


def test_ours_through_a_service(pattern: str) -> None:
    with Service(1, 1) as service, contextlib.closing(ours.Ours(pattern, 16, service=service.url)) as stream:
        assert list(islice(stream.batches(), 6)) == [16] * 6


def test_ready_batches_are_streamed_over_each_link(pattern: str) -> None:
    """The worker makes none: it sends four that were made before, as the socket does."""
    with service_ready.links(pattern, ROWS // 4) as links:
        found = service_stream.measure(links, 1, 3, lambda *_: None, settle=lambda: None)
    sizes = {name: received[0].num_bytes for name, received in found.items()}
    assert set(sizes) == {service_stream.SOCKET, service_stream.FLIGHT, service_stream.MEMORY}
    assert min(sizes.values()) >= 3 * ROWS // 4 * ours.ROW_BYTES
    assert max(sizes.values()) <= 1.01 * min(sizes.values())


def test_the_gap_after_a_kill_is_found(pattern: str) -> None:
    (gap,) = service_gap.measure(pattern, Setting(batch_size=8, num_kills=1, watch_s=0.1), lambda *_: None)
    assert gap.before_s > 0
    assert gap.after_s > 0
