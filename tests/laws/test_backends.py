"""What must hold of every back-end: samples, order, verdicts and masks are those of ``cpu``; pixels are alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stoker
from stoker import Backend, ops
from support import pictures
from support.loading import load, tar_of

slow_to_draw = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

NUM_SAMPLES = 61


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Good pictures of many sizes and kinds, and every third one odd or broken."""
    strange = [*pictures.odd().values(), *pictures.broken().values()]
    content = {
        f"{row:04d}": {
            "jpg": strange[row // 3 % len(strange)] if row % 3 == 1 else pictures.jpeg(row, 40 + row, 90 - row),
            "cls": str(row).encode(),
        }
        for row in range(NUM_SAMPLES)
    }
    return tar_of(tmp_path_factory.mktemp("mixed") / "a.tar", content)


def even(sample: dict[str, Any]) -> bool:
    return int(sample["cls"]) % 2 == 0


def brighter(sample: dict[str, Any]) -> dict[str, Any]:
    sample["image"] = np.minimum(sample["image"].astype(np.int64) + 9, 255).astype(np.uint8)
    return sample


middle = st.lists(
    st.sampled_from(
        [
            ops.RandomHorizontalFlip("image"),
            ops.RandomVerticalFlip("image"),
            ops.ColorJitter("image", 0.2, 0.2, 0.2),
            ops.ColorJitter("image", 0.2, hue=0.1),
            ops.CenterCrop("image", (30, 26)),
            ops.Resize("image", (28, 28)),
            ops.Pad("image", 2, fill=7),
            ops.Pad("image", 2, padding_mode="edge"),
            ops.RandomErasing("image", p=0.5, value=3.0),
            ops.Filter(even),
            ops.Map(brighter),
        ]
    ),
    max_size=4,
)


@given(
    data=st.data(),
    strict=st.booleans(),
    middle=middle,
    on_error=st.sampled_from(["replace", "drop"]),
    batch_size=st.integers(1, 9),
    num_threads=st.integers(1, 3),
)
@slow_to_draw
def test_samples_verdicts_and_masks_are_those_of_cpu(
    shard: str, data: st.DataObject, strict: bool, middle: list[Any], on_error: Any, batch_size: int, num_threads: int
) -> None:
    chain = [
        ops.DecodeImage("jpg", to="image", strict=strict),
        ops.Label("cls"),
        ops.RandomResizedCrop("image", 24, scale=(0.3, 1.0)),
        *middle,
        ops.Resize("image", (20, 20)),
    ]
    pipeline = stoker.Pipeline(
        stoker.tar(shard),
        chain,
        batch_size=batch_size,
        shuffle=True,
        seed=data.draw(st.integers(0, 9)),
        on_error=on_error,
    )
    rows = data.draw(st.integers(1, 12))
    with load(pipeline) as ours, load(pipeline, backend=Backend("dali", rows=rows), num_threads=num_threads) as theirs:
        for expected, found in zip(ours, theirs, strict=True):
            assert found["__key__"] == expected["__key__"]
            assert list(found) == list(expected)
            if "__mask__" in expected:
                np.testing.assert_array_equal(found["__mask__"], expected["__mask__"])
            np.testing.assert_array_equal(found["cls"], expected["cls"])
            assert found["image"].shape == expected["image"].shape
            if len(expected["__key__"]):
                assert np.abs(found["image"].astype(int) - expected["image"]).mean() <= 3
            assert theirs.state_dict() == ours.state_dict()
        mine, others = ours.stats(), theirs.stats()
    for counter in ("bad_samples", "filtered_samples", "conversions"):
        assert others[counter] == mine[counter]


def test_the_quarantine_says_the_same(shard: str, tmp_path: Path) -> None:
    chain = [ops.DecodeImage("jpg", to="image"), ops.RandomResizedCrop("image", 24), ops.ColorJitter("image", 0.4)]
    pipeline = stoker.Pipeline(stoker.tar(shard), chain, batch_size=4, on_error="drop")
    listed = []
    for backend in ("cpu", "dali"):
        path = tmp_path / f"{backend}.jsonl"
        with load(pipeline, backend=backend, quarantine=path) as loader:
            list(loader)
        listed.append([json.loads(line) for line in path.read_text().splitlines()])
    assert listed[0]
    assert listed[0] == listed[1]


def test_entries_of_a_cache_do_not_depend_on_the_back_end(shard: str, tmp_path: Path) -> None:
    """What cpu keeps decoded serves DALI, with a crop, a function and another crop behind it."""
    chain = [
        ops.DecodeImage("jpg", to="image"),
        ops.Resize("image", (40, 40)),
        ops.Cache(str(tmp_path / "kept")),
        ops.RandomResizedCrop("image", 24),
        ops.ColorJitter("image", 0.2, hue=0.1),
        ops.CenterCrop("image", 20),
    ]
    pipeline = stoker.Pipeline(stoker.tar(shard), chain, batch_size=8, on_error="replace")
    with load(pipeline) as loader:
        first = list(loader)
    with load(pipeline, backend="dali") as loader:
        kept = list(loader)
        counts = loader.stats()["decoded_cache"]
    assert counts["hits"] > 0
    assert counts["misses"] == 0
    for found, expected in zip(kept, first, strict=True):
        assert found["__key__"] == expected["__key__"]
        np.testing.assert_array_equal(found["__mask__"], expected["__mask__"])
        assert np.abs(found["image"].astype(int) - expected["image"]).mean() <= 3
