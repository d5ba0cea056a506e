"""Windows of turned pictures."""

from __future__ import annotations

import numpy as np
import pytest

from stoker.backends.cpu.orientation import UPRIGHT, by_number, from_exif
from stoker.ops.geometry import Window

STORED = np.arange(6 * 4).reshape(6, 4, 1)


@pytest.mark.parametrize("number", range(1, 9))
def test_a_window_of_the_seen_is_the_turned_window_of_the_stored(number: int) -> None:
    orientation = by_number(number)
    seen = orientation.apply(STORED)
    assert seen.shape[:2] == orientation.seen_size(6, 4)
    for window in (Window(0, 0, 1, 1), Window(1, 2, 3, 2), Window(0, 0, *seen.shape[:2])):
        part = orientation.stored_window(window, *seen.shape[:2])
        stored = STORED[part.top : part.bottom, part.left : part.right]
        expected = seen[window.top : window.bottom, window.left : window.right]
        assert (orientation.apply(stored) == expected).all()


def test_unknown_numbers_and_blocks_count_as_upright() -> None:
    assert by_number(0) == by_number(9) == UPRIGHT
    assert from_exif(b"") == from_exif(b"II*\0") == UPRIGHT
    assert from_exif(b"II*\0\x08\0\0\0\x01\0\x12\x01\x04\0\x01\0\0\0\x06\0\0\0") == UPRIGHT
    assert from_exif(b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0") == by_number(6)
    assert from_exif(b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0") == by_number(8)
