"""Where samples differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from stoker.compat.mismatch import first_difference


@pytest.mark.parametrize(
    "samples, expected",
    [
        ([1, 2], None),
        ([torch.zeros(2), torch.zeros(3)], "sample index 'a' has shape (2,), sample index 'b' has shape (3,)"),
        (
            [(1, np.zeros(2)), (1, np.zeros((2, 1)))],
            "at [1]: sample index 'a' has shape (2,), sample index 'b' has shape (2, 1)",
        ),
        (
            [{"x": [1, {"y": 1}]}, {"x": [1, {"y": "t"}]}],
            "at ['x'][1]['y']: sample index 'a' has an int, sample index 'b' has a str",
        ),
        ([{"x": 1}, {"z": 1}], "at ['x']: sample index 'a' has an int, sample index 'b' has nothing"),
        ([[1], [1, 2]], "sample index 'a' has a list of length 1, sample index 'b' has a list of length 2"),
        ([None, 1], "sample index 'a' has a NoneType, sample index 'b' has an int"),
        ([{"x": {1, 2}}, {"x": {3}}], None),
    ],
)
def test_first_difference(samples: list[Any], expected: str | None) -> None:
    """Field, both samples, both kinds."""
    assert first_difference(samples, ["a", "b"]) == expected


def test_the_first_that_differs_is_named() -> None:
    """The samples before it are alike."""
    samples = [torch.zeros(2), torch.zeros(2), torch.zeros(5), torch.zeros(6)]
    assert first_difference(samples, range(4)) == "sample index 0 has shape (2,), sample index 2 has shape (5,)"
