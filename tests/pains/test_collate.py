"""Samples of one batch that differ, and values that are no arrays (pain 47)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import stoker
from stoker import ops
from stoker.errors import CollateError
from support.loading import batches_of, numbered


def one_batch(folder: Path, function: Any, output: str = "numpy", **settings: Any) -> dict[str, Any]:
    """What a user's function makes of four samples whose ``cls`` is their number."""
    source = stoker.tar(numbered(folder / "a.tar", 4))
    pipeline = stoker.Pipeline(source, [ops.Label("cls"), ops.Map(function)], batch_size=4, **settings)
    (batch,) = batches_of(pipeline, output=output)
    assert batch["__key__"] == [f"{number:05d}" for number in range(4)]
    return batch


def mixed(sample: dict[str, Any]) -> dict[str, Any]:
    """Shapes (3, 5, 5) and, for sample 2, (3, 6, 5)."""
    height = 6 if sample["cls"] == 2 else 5
    return {"x": np.full((3, height, 5), sample["cls"], np.float32)}


def test_different_shapes_name_field_shapes_and_samples(tmp_path: Path) -> None:
    """Pain 47: shapes that cannot be stacked give an error with field, both shapes, both keys and what would work."""
    expected = r"field 'x': sample '00000' has shape \(3, 5, 5\) and sample '00002' has \(3, 6, 5\).*\"pad\".*\"list\""
    with pytest.raises(CollateError, match=expected):
        one_batch(tmp_path, mixed)


def test_pad(tmp_path: Path) -> None:
    """Pain 47: "pad" fills up with zeros to the largest, and says how long each was."""
    batch = one_batch(tmp_path, mixed, collate={"x": "pad"})
    assert batch["x"].shape == (4, 3, 6, 5)
    assert batch["x"][2].min() == 2.0
    assert batch["x"][3, :, :5].min() == 3.0
    assert batch["x"][3, :, 5].max() == 0.0
    assert batch["x_length"].tolist() == [[3, 5, 5], [3, 5, 5], [3, 6, 5], [3, 5, 5]]


def test_list(tmp_path: Path) -> None:
    """Pain 47: "list" gives each sample's array as it was."""
    batch = one_batch(tmp_path, mixed, collate={"x": "list"})
    assert [np.asarray(x).shape for x in batch["x"]] == [(3, 5, 5), (3, 5, 5), (3, 6, 5), (3, 5, 5)]
    assert [float(np.asarray(x).max()) for x in batch["x"]] == [0.0, 1.0, 2.0, 3.0]


def jagged(sample: dict[str, Any]) -> dict[str, Any]:
    """Lists of length 0, 1, 2, 3."""
    return {"ids": list(range(int(sample["cls"])))}


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_ragged_with_lists_of_length_0(tmp_path: Path, output: str) -> None:
    """Pain 47: "ragged" keeps lists of any length, 0 too, as arrays of one dtype."""
    batch = one_batch(tmp_path, jagged, output, collate={"ids": "ragged"})
    rows = list(batch["ids"])
    assert [np.asarray(row).tolist() for row in rows] == [[], [0], [0, 1], [0, 1, 2]]
    assert {np.asarray(row).dtype for row in rows} == {np.dtype(np.int64)}


def test_all_lists_of_length_0(tmp_path: Path) -> None:
    """Pain 47: a batch of which every list is empty is no special case."""
    batch = one_batch(tmp_path, lambda sample: {"ids": []}, collate={"ids": "ragged"})
    assert [len(row) for row in batch["ids"]] == [0, 0, 0, 0]
    assert one_batch(tmp_path, lambda sample: {"ids": []})["ids"] == [[], [], [], []]


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_strings_and_none_pass_through(tmp_path: Path, output: str) -> None:
    """Pain 47: strings, bytes and None come back as they were."""

    def values(sample: dict[str, Any]) -> dict[str, Any]:
        number = int(sample["cls"])
        return {"text": f"número {number}", "raw": bytes([number]), "nothing": None, "some": "x" if number else None}

    batch = one_batch(tmp_path, values, output)
    assert batch["text"] == [f"número {number}" for number in range(4)]
    assert batch["raw"] == [bytes([number]) for number in range(4)]
    assert batch["nothing"] == [None] * 4
    assert batch["some"] == [None, "x", "x", "x"]


def test_bfloat16_passes_through(tmp_path: Path) -> None:
    """Pain 47: bfloat16 tensors stay bfloat16, bit for bit."""

    def values(sample: dict[str, Any]) -> dict[str, Any]:
        return {"x": torch.tensor([1.5, float(sample["cls"])], dtype=torch.bfloat16)}

    batch = one_batch(tmp_path, values, "torch")
    assert batch["x"].dtype == torch.bfloat16
    assert batch["x"].tolist() == [[1.5, 0.0], [1.5, 1.0], [1.5, 2.0], [1.5, 3.0]]


class Pair(NamedTuple):
    left: int
    right: Any


@dataclass
class Box:
    size: Any
    name: str


def test_nested_values_pass_through(tmp_path: Path) -> None:
    """Pain 47: dicts, tuples, named tuples and dataclasses come back in their form, with batched leaves."""

    def values(sample: dict[str, Any]) -> dict[str, Any]:
        number = int(sample["cls"])
        return {
            "deep": {"a": {"b": np.full(2, number), "c": f"c{number}"}},
            "tuple": (number, "t"),
            "pair": Pair(number, np.zeros(3, np.uint8)),
            "box": Box(np.full((2, 2), number, np.int16), f"box {number}"),
        }

    batch = one_batch(tmp_path, values, "torch")
    assert batch["deep"]["a"]["b"].tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert batch["deep"]["a"]["c"] == ["c0", "c1", "c2", "c3"]
    assert isinstance(batch["tuple"], tuple)
    assert batch["tuple"][0].tolist() == [0, 1, 2, 3]
    assert batch["tuple"][1] == ["t"] * 4
    assert isinstance(batch["pair"], Pair)
    assert batch["pair"].right.shape == (4, 3)
    assert type(batch["box"]) is Box
    box: Any = batch["box"]
    assert box.size.dtype == torch.int16
    assert box.name == [f"box {number}" for number in range(4)]


def test_what_cannot_travel_is_named(tmp_path: Path) -> None:
    """Pain 47: a value of an unknown kind gives an error with field, sample and type, not a hang or a pickle."""
    with pytest.raises(CollateError, match=r"field 'odd' of sample '0000\d'.*builtins\.object.*cannot travel"):
        one_batch(tmp_path, lambda sample: {"odd": object()})


def test_kinds_that_differ_are_named(tmp_path: Path) -> None:
    """Pain 47: a field that is text in one sample and a number in another gives an error with both keys."""

    def values(sample: dict[str, Any]) -> dict[str, Any]:
        return {"x": "text" if sample["cls"] == 3 else 1}

    with pytest.raises(CollateError, match=r"field 'x': sample '00000' has a number and sample '00003' has a str"):
        one_batch(tmp_path, values)
