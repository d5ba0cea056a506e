"""Samples of a torch dataset that do not fit into one batch (pain 47)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stoker.compat.loader import DataLoader
from support.torch_datasets import Box, Valued, as_list

MIXED: list[dict[str, Any]] = [
    {"name": f"s{index}", "deep": [torch.zeros(3, 6 if index == 2 else 5, 5), index]} for index in range(6)
]


def text_of(error: BaseException) -> str:
    """An error with its notes, as people see it."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_different_shapes_name_field_shapes_and_samples(num_workers: int) -> None:
    """Pain 47: (3, 5, 5) and (3, 6, 5): torch's type of error; field, both shapes and the samples' keys in its text."""
    batches = iter(DataLoader(Valued(MIXED), 2, sampler=[5, 4, 3, 2, 1, 0], num_workers=num_workers))
    assert next(batches)["name"] == ["s5", "s4"]
    with pytest.raises(RuntimeError) as caught:
        next(batches)
    text = text_of(caught.value)
    for part in ("at ('deep')(0)", "sample index 3 has shape (3, 5, 5)", "sample index 2 has shape (3, 6, 5)"):
        assert part in text.replace("[", "(").replace("]", ")"), text
    assert next(batches)["name"] == ["s1", "s0"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_default_collate_does_not_know(num_workers: int) -> None:
    """Pain 47: None among the samples: torch's TypeError, with the sample's keys."""
    with pytest.raises(TypeError, match="NoneType") as caught:
        next(iter(DataLoader(Valued([None, None]), 2, num_workers=num_workers)))
    assert "0, 1" in text_of(caught.value)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_odd_values_pass_through(num_workers: int) -> None:
    """Pain 47: strings, None, bf16, nested dicts, dataclasses, lists of length 0 through a collate function."""
    values: list[Any] = [None, "x", torch.ones(2, dtype=torch.bfloat16), {"a": {"b": []}}, Box(1, (None,)), []]
    (batch,) = DataLoader(Valued(values), 6, num_workers=num_workers, collate_fn=as_list)
    assert batch[0] is None
    assert batch[2].dtype == torch.bfloat16
    assert [batch[1], *batch[3:]] == [values[1], *values[3:]]
