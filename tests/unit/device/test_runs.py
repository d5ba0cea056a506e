"""Arrays that lie side by side are one copy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.device.runs import packed_offsets, runs_of

MEMORY = np.arange(100, dtype=np.uint8)


def test_neighbours_of_one_column_are_one_run() -> None:
    column: list[NDArray[Any]] = [MEMORY[0:8].view(np.int16), MEMORY[8:8], MEMORY[8:9], MEMORY[12:24].reshape(1, 12)]
    (run,) = runs_of([column])
    assert run.num_bytes == 24
    assert run.starts == (0, 0, 8, 12)
    assert run.memory().tolist() == list(range(24))


def test_what_lies_apart_or_in_other_columns_is_not() -> None:
    assert [run.num_bytes for run in runs_of([[MEMORY[0:8], MEMORY[72:83]], [MEMORY[83:88]], []])] == [8, 11, 5]
    assert [run.num_bytes for run in runs_of([[MEMORY[9:20], MEMORY[0:8]]])] == [11, 8]


def test_arrays_without_numbers_are_no_obstacle() -> None:
    nothing = np.empty((0, 3), np.float32)
    (run,) = runs_of([[nothing, MEMORY[3:5], nothing, MEMORY[5:6]]])
    assert run.memory().tolist() == [3, 4, 5]
    (empty,) = runs_of([[nothing]])
    assert empty.memory().tolist() == []


def test_packed_runs_are_aligned() -> None:
    runs = runs_of([[MEMORY[:1]], [MEMORY[:0]], [MEMORY[:65]], [MEMORY[:2]]])
    assert packed_offsets(runs) == ([0, 64, 64, 192], 256)
