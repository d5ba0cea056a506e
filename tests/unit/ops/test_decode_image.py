"""DecodeImage: what files become, and which are refused."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageOps

from stoker import ops
from stoker.backends.cpu.orientation import by_number
from stoker.errors import SampleError, SpecError
from support import pictures
from support.ops import decoded, image, resized_differences, run

DECODE = ops.DecodeImage("image")


def pillow(file: bytes, mode: str = "RGB") -> np.ndarray[Any, Any]:
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(file))).convert(mode))


@pytest.mark.parametrize(
    "name", sorted(set(pictures.odd()) - {"gzip-wrapped.jpg", "grey16.png", "rgb16.png", "ycck.jpg"})
)
def test_pixels_are_those_of_pillow(name: str) -> None:
    file = pictures.odd()[name]
    assert (decoded(DECODE, file) == pillow(file)).all()


def test_ycck_is_near_pillow() -> None:
    file = pictures.ycck_jpeg()
    assert np.abs(decoded(DECODE, file).astype(int) - pillow(file)).mean() <= 1


@pytest.mark.parametrize("file_format", ["PNG", "WEBP", "BMP", "TIFF", "JPEG"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_formats_are_told_apart_by_content(file_format: str, mode: str) -> None:
    file = pictures.encode(Image.fromarray(pictures.pixels()).convert(mode), file_format)
    assert (decoded(DECODE, file) == pillow(file)).all()


def test_a_gzip_wrapping_is_taken_off() -> None:
    file = pictures.jpeg()
    assert (decoded(DECODE, gzip.compress(file)) == pillow(file)).all()
    with pytest.raises(SampleError, match="gzip"):
        decoded(DECODE, gzip.compress(file)[:-9])
    with pytest.raises(SampleError, match="gzip"):
        decoded(DECODE, b"\x1f\x8bnothing")


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(60, 40), (33, 49)])
def test_orientation_is_applied_with_and_without_a_crop(orientation: int, size: tuple[int, int]) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = pictures.jpeg(1, *size, exif=exif)
    seen = pillow(file)
    assert (decoded(DECODE, file) == seen).all()
    for seed in range(5):
        draws = np.random.default_rng(seed).random(22).tolist()
        crop = ops.RandomResizedCrop("image", 24)
        window = crop.window(seen.shape[0], seen.shape[1], draws)
        part = Image.fromarray(seen).crop((window.left, window.top, window.right, window.bottom))
        expected = np.asarray(part.resize((24, 24), Image.Resampling.BILINEAR)).astype(int)
        assert resized_differences(image([DECODE, crop], file, draws), expected).max() <= 1


@pytest.mark.parametrize("file_format", ["PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", [3, 6])
def test_orientation_counts_in_every_format(file_format: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = pictures.encode(pictures.pixels(), file_format, exif=exif)
    assert (decoded(DECODE, file) == pillow(file)).all()


@pytest.mark.parametrize("number", range(1, 9))
def test_sixteen_bit_colours_are_turned_too(number: int) -> None:
    stored = np.random.default_rng(0).integers(0, 65536, (20, 30, 3), np.uint16)
    seen = by_number(number).apply(stored)
    out = io.BytesIO()
    tifffile.imwrite(out, stored, photometric="rgb", extratags=[(274, "H", 1, number, True)])
    assert (decoded(ops.DecodeImage("image", dtype="uint16"), out.getvalue()) == seen).all()
    exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0" + bytes([number]) + b"\0\0\0\0\0\0"
    chunk = len(exif).to_bytes(4, "big") + b"eXIf" + exif + zlib.crc32(b"eXIf" + exif).to_bytes(4, "big")
    png = pictures.rgb16_png(30, 20)
    upright = decoded(ops.DecodeImage("image", dtype="uint16"), png)
    turned = decoded(ops.DecodeImage("image", dtype="uint16"), png[:33] + chunk + png[33:])
    assert (turned == by_number(number).apply(upright)).all()


@pytest.mark.parametrize("block", [b"", b"Exif\0\0MM\0*\0\0\xff\xff", b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01"])
def test_a_damaged_exif_block_counts_as_none(block: bytes) -> None:
    file = pictures.jpeg()
    marker = b"\xff\xe1" + (len(block) + 2).to_bytes(2, "big") + block
    assert (decoded(DECODE, file[:2] + marker + file[2:]) == pillow(file)).all()


def test_a_long_header_is_read_whole() -> None:
    file = pictures.jpeg()
    marker = b"\xff\xe2" + (60_002).to_bytes(2, "big") + bytes(60_000)
    assert (decoded(DECODE, file[:2] + marker + file[2:]) == pillow(file)).all()


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
@pytest.mark.parametrize("name", ["rgba.png", "palette.png", "grey.jpg", "exif6.jpg", "cmyk.jpg"])
def test_modes_are_converted_as_pillow_does(name: str, mode: Any) -> None:
    file = pictures.odd()[name]
    expected = pillow(file, mode).reshape(*pillow(file).shape[:2], -1)
    assert (decoded(ops.DecodeImage("image", mode=mode), file) == expected).all()


@pytest.mark.parametrize(
    "name, channels",
    [("rgba.png", 4), ("palette.png", 4), ("grey.jpg", 1), ("grey-alpha.png", 2), ("cmyk.jpg", 4), ("exif6.jpg", 3)],
)
def test_unchanged_keeps_the_channels_of_the_file(name: str, channels: int) -> None:
    assert decoded(ops.DecodeImage("image", mode="unchanged"), pictures.odd()[name]).shape[2] == channels


def test_transparent_parts_show_the_background() -> None:
    white = decoded(ops.DecodeImage("image", background=(255, 0, 10)), pictures.rgba_png())
    assert (white[:, : pictures.WIDTH // 2] == (255, 0, 10)).all()
    assert (white[:, pictures.WIDTH // 2 :] == pictures.pixels()[:, pictures.WIDTH // 2 :]).all()


def test_sixteen_bits_are_scaled_never_clamped() -> None:
    grey = decoded(ops.DecodeImage("image", mode="L"), pictures.grey16_png())
    assert grey.dtype == np.uint8
    expected = np.rint(np.linspace(0, 65535, 256).astype(np.uint16) / 257)
    assert (grey[0, :, 0] == expected).all()


def test_sixteen_bits_are_kept_if_asked() -> None:
    grey = decoded(ops.DecodeImage("image", mode="L", dtype="uint16"), pictures.grey16_png())
    assert (grey[0, :, 0] == np.linspace(0, 65535, 256).astype(np.uint16)).all()
    colour = decoded(ops.DecodeImage("image", dtype="uint16"), pictures.rgb16_png())
    up = np.linspace(0, 65535, 256).astype(np.uint16)
    down = np.linspace(0, 65535, 256)[::-1].astype(np.uint16)
    assert (colour[0] == np.stack([up, down, np.full(256, 32768)], axis=-1)).all()
    assert decoded(ops.DecodeImage("image", dtype="uint16"), pictures.jpeg()).max() > 255


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", sorted(pictures.broken()))
def test_what_is_no_whole_picture_is_refused(name: str, strict: bool) -> None:
    with pytest.raises(SampleError, match="DecodeImage"):
        decoded(ops.DecodeImage("image", strict=strict), pictures.broken()[name])


def test_damage_is_an_error_if_strict_and_read_like_pillow_if_not() -> None:
    file = pictures.damaged_scan()
    with pytest.raises(SampleError, match="Corrupt JPEG"):
        decoded(DECODE, file)
    assert (decoded(ops.DecodeImage("image", strict=False), file) == pillow(file)).all()


@pytest.mark.parametrize("strict", [True, False])
def test_the_verdict_does_not_depend_on_the_crop(strict: bool) -> None:
    whole = pictures.jpeg(2, 320, 240)
    crop = ops.RandomResizedCrop("image", 16, scale=(0.01, 0.01))
    at_the_top = [*[0.5] * 20, 0.0, 0.5]
    late = len(whole) - 400
    damaged = whole[:late] + bytes(byte ^ 0x5A for byte in whole[late : late + 60]) + whole[late + 60 :]
    for file in (whole[: len(whole) - 300], whole[:-2]):
        with pytest.raises(SampleError):
            image([ops.DecodeImage("image", strict=strict), crop], file, at_the_top)
    steps = [ops.DecodeImage("image", strict=strict), crop]
    if strict:
        with pytest.raises(SampleError):
            image(steps, damaged, at_the_top)
    else:
        assert (image(steps, damaged, at_the_top) == image(steps, whole, at_the_top)).all()


def test_a_picture_that_is_too_large_is_refused_before_it_is_decoded() -> None:
    for file in (pictures.jpeg(), pictures.png()):
        with pytest.raises(SampleError, match="max_pixels=3000"):
            run(ops.DecodeImage("image", max_pixels=3000), {"image": file})


def test_alternatives_are_tried_in_order() -> None:
    op = ops.DecodeImage("jpg;jpeg;png", to="image")
    sample = run(op, {"png": pictures.png(), "cls": b"3"})
    assert set(sample.fields) == {"image", "cls"}
    assert (op.reads, op.writes, op.drops) == ((), ("image",), ("jpg", "jpeg", "png"))
    with pytest.raises(SampleError, match="none of the fields jpg, jpeg, png; this sample has: cls"):
        run(op, {"cls": b"3"})


def test_a_memoryview_decodes_as_bytes_do() -> None:
    file = pictures.jpeg()
    assert (image(DECODE, memoryview(file)) == decoded(DECODE, file)).all()


def test_errors_say_what_was_found() -> None:
    with pytest.raises(SampleError, match="no field 'jpg'; this sample has: txt"):
        run(ops.DecodeImage("jpg"), {"txt": b""})
    with pytest.raises(SampleError, match="begin with b'<html>"):
        decoded(DECODE, b"<html><body>")
    with pytest.raises(SpecError, match="to='image'"):
        ops.DecodeImage("jpg;png")
    with pytest.raises(SpecError, match="background"):
        ops.DecodeImage("jpg", background=(0, 0, 256))
