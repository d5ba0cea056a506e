"""A worker's back-end: one program a pipeline, what it says that it is, and a GPU that is lost."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import stoker
from stoker import ops
from stoker.backends import registry
from stoker.errors import DeviceLostError, SpecError
from stoker.processes.ending import EXIT_DEVICE_LOST
from stoker_service.options import WorkerOptions
from stoker_service.worker import producers
from stoker_service.worker.server import WorkerServer
from support.streams import pictures
from unit.service.worker.conftest import NOBODY, WAIT_S, Start


def losing_its_gpu(sample: dict[str, Any]) -> dict[str, Any]:
    raise DeviceLostError("the GPU's context is broken")


def test_all_lanes_of_a_pipeline_have_one_program(
    start: Start, pipeline: stoker.Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So they share its pipelines on the GPU too."""
    made: list[object] = []

    def counted(*arguments: Any) -> Any:
        made.append(registry.compile_ops(*arguments))
        return made[-1]

    monkeypatch.setattr(producers, "compile_ops", counted)
    hands = start(backend="cpu")
    calls = [hands.open(hands.request(pipeline, lane)) for lane in range(3)]
    for call in calls:
        call.credit(1)
        call.batch()
    assert len(made) == 1


@pytest.mark.parametrize("backend", ["cpu", "dali"])
def test_it_says_what_it_is(start: Start, backend: str) -> None:
    if backend == "dali":
        pytest.importorskip("nvidia.dali")
    hands = start(backend=backend)
    described, stats = hands.server._described(), hands.server.stats()
    assert (described.backend, described.device) == (stats.backend, stats.device) == (backend, "cpu")


def test_one_that_cannot_work_does_not_begin() -> None:
    with pytest.raises(SpecError, match="uses no GPU"):
        WorkerServer(WorkerOptions(NOBODY, backend="cpu", device="cuda:0"))


def test_a_lost_gpu_ends_the_worker_and_is_no_error_of_the_job(
    start: Start, shards: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its clients hear nothing: when the process is gone, they go elsewhere."""
    pipeline = pictures(shards, ops.Map(losing_its_gpu, seed_globals=False))
    with caplog.at_level(logging.ERROR, "stoker"):
        hands = start(allow_code=True)
        call = hands.open(hands.request(pipeline))
        call.credit(2)
        heard: list[object] = []
        listener = threading.Thread(target=lambda: heard.append(_heard(call)), daemon=True)
        listener.start()
        assert hands.server.wait() == EXIT_DEVICE_LOST
        assert hands.server.unready() == "the worker drains"
    hands.close()
    listener.join(WAIT_S)
    assert heard == [None]
    (told,) = [record.getMessage() for record in caplog.records if "to be started again" in record.getMessage()]
    assert "the GPU's context is broken" in told


def _heard(call: Any) -> object:
    """What the client hears but beats; None if it is cut off before."""
    try:
        return call.message()[0].WhichOneof("kind")
    except Exception:  # noqa: BLE001  # however Arrow says that the call was cut
        return None
