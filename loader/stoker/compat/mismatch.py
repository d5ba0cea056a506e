"""Where the samples of a batch differ, for the text of an error of collate_fn."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch


def first_difference(samples: Sequence[Any], keys: Sequence[Any]) -> str | None:
    """Name the first field whose shape, length, type or keys are not those of the first sample, and both samples.

    For instance ``at ['boxes'][0]: sample index 3 has shape (4, 4), sample index 7 has shape (2, 4)``. None if they are
    alike as far as this looks: into dicts, lists and tuples.
    """
    return _differ(list(samples), [reprlib.repr(key) for key in keys], "")


def _differ(values: list[Any], names: list[str], path: str) -> str | None:
    kinds = [_kind(value) for value in values]
    for name, kind in zip(names, kinds, strict=True):
        if kind != kinds[0]:
            where = f"at {path}: " if path else ""
            return f"{where}sample index {names[0]} has {kinds[0]}, sample index {name} has {kind}"
    first = values[0]
    if isinstance(first, dict):
        parts: Any = first
    elif isinstance(first, (list, tuple)):
        parts = range(len(first))
    else:
        return None
    found = (_differ([_part(value, part) for value in values], names, f"{path}[{part!r}]") for part in parts)
    return next((difference for difference in found if difference), None)


class _Absent:
    """The type of what a sample does not have."""


def _part(value: Any, part: Any) -> Any:
    return value.get(part, _Absent) if isinstance(value, dict) else value[part]


def _kind(value: Any) -> str:
    if value is _Absent:
        return "nothing"
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return f"shape {tuple(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of length {len(value)}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
