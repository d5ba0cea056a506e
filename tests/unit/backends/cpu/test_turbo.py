"""Decoding parts with libjpeg-turbo gives what decoding all gives."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import simplejpeg

from stoker.backends.cpu import jpeg, turbo
from stoker.backends.cpu.convert import Wanted
from stoker.backends.cpu.jpeg_header import parse
from stoker.errors import SampleError
from stoker.ops.geometry import Window
from support import pictures

RGB = Wanted("RGB", "uint8", None)


def sharp(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (height, width, channels), np.uint8)


def source(file: bytes, *, strict: bool) -> jpeg.JpegSource:
    return jpeg.JpegSource(file, parse(file), RGB, "op", strict=strict)


def windows(height: int, width: int, count: int) -> list[Window]:
    rng = np.random.default_rng(height)
    found = []
    for _ in range(count):
        h, w = (int(rng.integers(1, side + 1)) for side in (height, width))
        found.append(Window(int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w))
    return found


def test_a_library_is_there() -> None:
    """The pinned development environment carries one; without it pictures decode as well, but slower."""
    assert turbo.load() is not None


def test_a_decoder_is_freed_when_its_thread_ends() -> None:
    freed: list[int] = []
    mine = turbo._PerThread(lambda _: threading.get_ident(), freed.append)
    threads = [threading.Thread(target=lambda: mine.decoder) for _ in range(3)]
    for thread in threads:
        thread.start()
    used = [thread.ident for thread in threads]
    for thread in threads:
        thread.join()
    assert sorted(freed) == sorted(number for number in used if number is not None)


@pytest.mark.parametrize(
    "broken", [*pictures.broken().values(), pictures.jpeg(1).replace(b"\xff\xdb\x00\x43\x00", b"\xff\xdb\x00\x43\x0f")]
)
def test_a_broken_picture_leaves_the_next_one_whole(broken: bytes) -> None:
    library = turbo.load()
    assert library is not None
    good, window = pictures.jpeg(1), Window(0, 0, 48, 64)
    expected = library.reader(good, window, 3)().copy()
    with pytest.raises(SampleError):
        library.reader(broken, window, 3)()
    assert (library.reader(good, window, 3)() == expected).all()


@pytest.mark.parametrize("subsampling", ["444", "422", "420", "440", "411", "Gray"])
@pytest.mark.parametrize("size", [(48, 64), (101, 133), (17, 200), (8, 8), (1, 1)])
@pytest.mark.parametrize("strict", [True, False])
def test_every_window_equals_the_whole(subsampling: str, size: tuple[int, int], strict: bool) -> None:
    channels = 1 if subsampling == "Gray" else 3
    colours = "GRAY" if channels == 1 else "RGB"
    file = simplejpeg.encode_jpeg(sharp(*size, channels), 90, colours, subsampling)
    whole = simplejpeg.decode_jpeg(file)
    for window in windows(*size, 20):
        expected = whole[window.top : window.bottom, window.left : window.right]
        assert (source(file, strict=strict).reader(window)() == expected).all()


@pytest.mark.parametrize("width", [16, 17, 18, 19, 34, 50])
@pytest.mark.parametrize("strict", [True, False])
def test_a_window_of_one_column_equals_the_whole(width: int, strict: bool) -> None:
    file = simplejpeg.encode_jpeg(sharp(33, width), 90, colorsubsampling="420")
    whole = simplejpeg.decode_jpeg(file)
    for left in range(width):
        found = source(file, strict=strict).reader(Window(3, left, 20, 1))()
        assert (found == whole[3:23, left : left + 1]).all()


@pytest.mark.parametrize("strict", [True, False])
def test_a_file_that_pillow_does_not_know_is_a_bad_sample(strict: bool) -> None:
    file = b"\xff\xd8\xff\xc0\x00\x11\x08\x00\x10\x00\x10\x05" + bytes(60)
    with pytest.raises(SampleError):
        jpeg.by_pillow(file)
    with pytest.raises(SampleError):
        source(file, strict=strict).reader(Window(0, 0, 4, 4))()


def test_progressive_pictures_have_parts_too() -> None:
    file = pictures.jpeg(2, 160, 120, progressive=True)
    whole = simplejpeg.decode_jpeg(file)
    for window in windows(120, 160, 20):
        expected = whole[window.top : window.bottom, window.left : window.right]
        assert (source(file, strict=True).reader(window)() == expected).all()


def test_without_a_library_the_pixels_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    file = simplejpeg.encode_jpeg(sharp(101, 133), 90, colorsubsampling="420")
    found = windows(101, 133, 10)
    parts = [source(file, strict=True).reader(window)().copy() for window in found]
    monkeypatch.setattr(turbo, "load", lambda: None)
    for window, part in zip(found, parts, strict=True):
        assert (source(file, strict=True).reader(window)() == part).all()


@pytest.mark.parametrize("kind", ["cut", "garbage", "flipped bit", "zeros"])
def test_the_verdict_on_damage_is_that_of_a_strict_whole_decode(kind: str) -> None:
    good = simplejpeg.encode_jpeg(sharp(101, 133), 90, colorsubsampling="420")
    rng = np.random.default_rng(len(kind))
    num_bad = 0
    for _ in range(40):
        at, file = int(rng.integers(650, len(good) - 2)), bytearray(good)
        match kind:
            case "cut":
                del file[at:]
            case "garbage":
                file[at : at + 20] = rng.integers(0, 255, 20, np.uint8).tobytes()
            case "flipped bit":
                file[at] ^= 1 << int(rng.integers(8))
            case _:
                file[at : at + 64] = bytes(64)
        try:
            simplejpeg.decode_jpeg(bytes(file))
        except ValueError:
            num_bad += 1
            with pytest.raises(SampleError):
                source(bytes(file), strict=True).reader(Window(0, 0, 16, 16))()
        else:
            source(bytes(file), strict=True).reader(Window(0, 0, 16, 16))()
    assert num_bad > 5
