"""The contact sheet shows each picture in its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from stoker_bench import contact_sheet


def test_pictures_stand_row_by_row_with_gaps() -> None:
    images = np.stack([np.full((10, 20, 3), 40 * number, dtype=np.uint8) for number in range(1, 6)])
    laid = contact_sheet.sheet(images, num_columns=3)
    assert laid.shape == (2 * 14 + 4, 3 * 24 + 4, 3)
    assert laid[4, 4, 0] == 40
    assert laid[4, 4 + 24, 0] == 80
    assert laid[4 + 14, 4, 0] == 160
    assert laid[0, 0, 0] == contact_sheet.BACKGROUND == laid[-1, -1, 0]


def test_a_png_is_written_where_it_was_asked_for(tmp_path: Path) -> None:
    contact_sheet.write(tmp_path / "new" / "sheet.png", np.zeros((4, 8, 8, 3), dtype=np.uint8))
    with Image.open(tmp_path / "new" / "sheet.png") as image:
        assert (image.format, image.size) == ("PNG", (28, 28))
