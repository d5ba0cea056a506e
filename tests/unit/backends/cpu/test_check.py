"""JpegSource.check: finds what a strict decoding of the whole picture finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stoker.backends.cpu import jpeg_header
from stoker.backends.cpu.convert import Wanted
from stoker.backends.cpu.jpeg import JpegSource
from stoker.errors import SampleError
from stoker.ops.geometry import whole
from support import pictures

USUAL = Wanted("RGB", "uint8", None)


def source(file: bytes, *, strict: bool = True) -> JpegSource:
    return JpegSource(file, jpeg_header.parse(file), USUAL, "DecodeImage", strict=strict)


def verdict(file: bytes, *, checked: bool) -> bool:
    try:
        found = source(file)
        found.check() if checked else found.reader(whole(*found.size))()
    except SampleError:
        return False
    return True


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"restart_marker_rows": 1}])
def test_the_verdict_is_that_of_decoding_all(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    good = pictures.jpeg(3, 150, 110, **options)
    scan = good.index(b"\xff\xda") + 14
    verdicts = set()
    for _ in range(60):
        file = bytearray(good)
        at = int(rng.integers(scan, len(good) - 12))
        file[at : at + 4] = rng.integers(0, 256, 4, dtype=np.uint8).tobytes()
        decoded = verdict(bytes(file), checked=False)
        assert verdict(bytes(file), checked=True) == decoded
        verdicts.add(decoded)
    assert False in verdicts
    assert verdict(good, checked=True)


def test_without_strict_nothing_is_looked_for() -> None:
    with pytest.raises(SampleError):
        source(pictures.damaged_scan()).check()
    source(pictures.damaged_scan(), strict=False).check()
