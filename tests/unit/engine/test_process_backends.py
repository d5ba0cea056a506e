"""Worker processes with a back-end: it goes with their setup, and a GPU that is lost costs a process."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import ops
from stoker.backends.options import Backend
from stoker.errors import DeviceLostError
from stoker.processes.ending import EXIT_DEVICE_LOST
from stoker.testing import assert_equal_batches
from support.crashes import dying_of, numbers
from support.loading import load, numbered
from support.streams import make_pictures, pictures


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_pictures(tmp_path_factory.mktemp("shards"))


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> str:
    return numbered(tmp_path_factory.mktemp("labels") / "a.tar", 60)


def lose_the_gpu() -> None:
    raise DeviceLostError("the GPU's context is broken")


def replacements(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "takes its place" in record.getMessage()]


def test_workers_have_the_loaders_back_end(shards: str) -> None:
    """With DALI they make what DALI makes in the trainer, to the last bit: which is not what ``cpu`` makes."""
    pytest.importorskip("nvidia.dali")
    pipeline, backend = pictures(shards, seed=5), Backend("dali")
    with load(pipeline, backend="cpu") as loader:
        by_cpu = list(loader)
    with load(pipeline, backend=backend) as loader:
        expected = list(loader)
    with load(pipeline, backend=backend, num_workers=2) as loader:
        assert_equal_batches(list(loader), expected)
    assert any((one["image"] != other["image"]).any() for one, other in zip(expected, by_cpu, strict=True))


def test_what_workers_are_forked_from_knows_no_gpu(labels: str) -> None:
    """CUDA works in no child of a process that has begun to use it: each worker begins by itself."""
    pytest.importorskip("nvidia.dali")

    def look(sample: dict[str, Any]) -> dict[str, Any]:
        maps = [Path(f"/proc/{pid}/maps").read_text(encoding="utf-8") for pid in (os.getpid(), os.getppid())]
        return {"has": np.array([[name in text for name in ("libdali", "libcuda.so")] for text in maps])}

    pipeline = stoker.Pipeline(stoker.tar(labels), [ops.Map(look, seed_globals=False)], batch_size=4)
    with load(pipeline, backend=Backend("dali"), num_workers=1) as loader:
        has = next(iter(loader))["has"]
    assert not has[:, 1].any()


def test_a_lost_gpu_costs_a_process_and_no_sample(
    labels: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    note = tmp_path / "note"

    def lose_once() -> None:
        if not note.exists():
            note.touch()
            lose_the_gpu()

    with load(numbers(labels, dying_of(set()))) as loader:
        expected = list(loader)
    with (
        caplog.at_level(logging.WARNING, "stoker"),
        load(numbers(labels, dying_of({17}, lose_once)), num_workers=2) as loader,
    ):
        assert_equal_batches(list(loader), expected)
        assert loader.stats()["bad_samples"] == 0
    (told,) = replacements(caplog)
    assert f"exited with code {EXIT_DEVICE_LOST} (its context on the GPU was broken" in told


def test_a_sample_that_breaks_every_context_is_bad(
    labels: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that crashes: the child process in which it is tried loses its GPU twice."""
    quarantine = tmp_path / "bad.jsonl"
    pipeline = numbers(labels, dying_of({17}, lose_the_gpu), on_error="replace")
    with (
        caplog.at_level(logging.WARNING, "stoker"),
        load(pipeline, num_workers=2, quarantine=quarantine) as loader,
    ):
        masks = np.concatenate([batch["__mask__"] for batch in loader])
    assert np.count_nonzero(~masks) == 1
    (entry,) = [json.loads(line) for line in quarantine.read_text().splitlines()]
    assert entry["key"] == "00017"
    assert "its context on the GPU was broken" in entry["reason"]
    assert len(replacements(caplog)) == 1


def test_in_the_trainers_own_process_it_is_raised(labels: str) -> None:
    """There is no other process to go on in."""

    def lose(sample: dict[str, Any]) -> dict[str, Any]:
        raise DeviceLostError("the GPU's context is broken")

    pipeline = stoker.Pipeline(stoker.tar(labels), [ops.Label("cls"), ops.Map(lose)], batch_size=4, on_error="drop")
    with load(pipeline) as loader, pytest.raises(DeviceLostError, match="context is broken"):
        next(iter(loader))
