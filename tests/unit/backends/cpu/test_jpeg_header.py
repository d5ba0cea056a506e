"""Marker parsing."""

from __future__ import annotations

import pytest
from PIL import Image

from stoker.backends.cpu.jpeg_header import parse
from stoker.errors import SampleError
from support import pictures


def test_size_and_channels_are_those_of_the_picture() -> None:
    header = parse(pictures.jpeg(0, 65, 33))
    assert (header.height, header.width, header.channels, header.precision) == (33, 65, 3, 8)
    assert parse(pictures.grey_jpeg()).channels == 1
    assert parse(pictures.cmyk_jpeg()).channels == 4


def test_stray_bytes_between_markers_are_skipped() -> None:
    file = pictures.jpeg()
    assert parse(file[:2] + b"\x00\x01\xff\xff" + file[2:]) == parse(file)


@pytest.mark.parametrize("marker", range(0xC0, 0xD0))
def test_every_frame_marker_is_known(marker: int) -> None:
    file = pictures.jpeg()
    changed = file.replace(b"\xff\xc0", bytes([0xFF, marker]), 1)
    if marker in (0xC4, 0xC8, 0xCC):
        with pytest.raises(SampleError, match="how large"):
            parse(changed)
    else:
        assert parse(changed) == parse(file)


def test_a_cut_anywhere_before_the_end_of_the_frame_is_an_error() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    file = pictures.jpeg(exif=exif)
    frame = file.index(b"\xff\xc0")
    end = frame + 2 + int.from_bytes(file[frame + 2 : frame + 4], "big")
    for length in range(2, end):
        with pytest.raises(SampleError):
            parse(file[:length])
    assert parse(file[:end]).orientation.transpose


def test_a_frame_that_is_too_short_or_says_no_size_is_an_error() -> None:
    with pytest.raises(SampleError, match="cut short"):
        parse(b"\xff\xd8\xff\xc0\x00\x04\x08\x00" + bytes(20))
    with pytest.raises(SampleError, match="how large"):
        parse(b"\xff\xd8\xff\xc0\x00\x0b\x08\x00\x00\x00\x10\x01\x01\x11\x00" + bytes(20))
