"""Pictures made smaller or encoded anew."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stoker.convert.options import ConvertOptions
from stoker.convert.pictures import transform
from stoker.errors import SampleError
from support import pictures


def opened(content: bytes | memoryview) -> Any:
    return Image.open(io.BytesIO(content))


def test_without_options_nothing_is_looked_at() -> None:
    fields: dict[str, bytes | memoryview] = {"jpg": b"broken"}
    assert transform(fields, ConvertOptions()) is fields


def test_large_pictures_become_smaller_and_small_ones_keep_their_bytes() -> None:
    options = ConvertOptions(shorter_side=24)
    found = transform({"jpg": pictures.jpeg(1), "png": pictures.png(2, 30, 20), "cls": b"1"}, options)
    assert opened(found["jpg"]).size == (32, 24)
    assert opened(found["jpg"]).format == "JPEG"
    assert found["png"] == pictures.png(2, 30, 20)
    assert found["cls"] == b"1"
    wanted = np.asarray(Image.fromarray(pictures.pixels(1)).resize((32, 24), Image.Resampling.LANCZOS), np.float64)
    assert np.abs(np.asarray(opened(found["jpg"]), np.float64) - wanted).mean() < 10


@pytest.mark.parametrize("encode,kind,field", [("jpeg", "JPEG", "jpg"), ("webp", "WEBP", "webp")])
def test_pictures_are_encoded_anew_under_their_new_name(encode: Any, kind: str, field: str) -> None:
    (found,) = [transform({"png": pictures.png(), "cls": b"1"}, ConvertOptions(encode=encode))]
    assert list(found) == [field, "cls"]
    assert opened(found[field]).format == kind
    assert opened(found[field]).size == (64, 48)


def test_quality_counts() -> None:
    sizes = [
        len(transform({"jpg": pictures.jpeg()}, ConvertOptions(encode="jpeg", quality=q))["jpg"]) for q in (30, 95)
    ]
    assert sizes[0] < sizes[1]


def test_other_formats_become_png_when_they_are_made_smaller() -> None:
    bitmap = pictures.encode(pictures.pixels(), "BMP")
    (name,) = found = transform({"bmp": bitmap}, ConvertOptions(shorter_side=12))
    assert (name, opened(found[name]).format) == ("png", "PNG")


def test_masks_keep_their_bytes_unless_they_are_named() -> None:
    fields: dict[str, bytes | memoryview] = {"seg.png": pictures.png()}
    assert transform(fields, ConvertOptions(shorter_side=12)) == fields
    named = transform(fields, ConvertOptions(shorter_side=12, pictures=("seg.png",)))
    assert opened(named["seg.png"]).size == (16, 12)


def test_a_turned_picture_is_stored_as_it_is_seen() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = pictures.jpeg(exif=exif.tobytes())
    found = transform({"jpg": turned}, ConvertOptions(encode="jpeg"))["jpg"]
    assert opened(found).size == (48, 64)
    assert 0x0112 not in opened(found).getexif()


def test_colours_that_the_format_has_not() -> None:
    palette = pictures.encode(Image.fromarray(pictures.pixels()).convert("P"), "PNG")
    clear = pictures.encode(Image.fromarray(np.dstack([pictures.pixels(), np.full((48, 64), 99, np.uint8)])), "PNG")
    ink = pictures.encode(Image.fromarray(pictures.pixels()).convert("CMYK"), "JPEG")
    grey = pictures.encode(Image.fromarray(pictures.pixels()).convert("L"), "PNG")
    for content, in_jpeg, in_webp in (
        (palette, "RGB", "RGB"),
        (clear, "RGB", "RGBA"),
        (ink, "RGB", "RGB"),
        (grey, "L", "RGB"),
    ):
        assert opened(transform({"png": content}, ConvertOptions(encode="jpeg"))["jpg"]).mode == in_jpeg
        assert opened(transform({"png": content}, ConvertOptions(encode="webp"))["webp"]).mode == in_webp


def test_a_colour_profile_is_kept() -> None:
    profile = b"profile" * 20
    found = transform({"jpg": pictures.jpeg(icc_profile=profile)}, ConvertOptions(shorter_side=12))
    assert opened(found["jpg"]).info["icc_profile"] == profile


def test_broken_pictures_are_bad_records() -> None:
    with pytest.raises(SampleError, match=r"expected a picture in 'jpg', found 4 bytes that begin with b'text'"):
        transform({"jpg": b"text"}, ConvertOptions(shorter_side=12))
    with pytest.raises(SampleError, match="cannot be made anew"):
        transform({"jpg": pictures.jpeg()[:-400]}, ConvertOptions(shorter_side=12))


def test_depth_is_not_thrown_away() -> None:
    deep = pictures.encode(Image.fromarray(np.full((40, 40), 40_000, np.uint16)), "PNG")
    with pytest.raises(SampleError, match="would lose depth"):
        transform({"png": deep}, ConvertOptions(encode="jpeg"))


def test_a_new_name_that_is_taken() -> None:
    with pytest.raises(SampleError, match="the record has such a field already"):
        transform({"png": pictures.png(), "jpg": pictures.jpeg()}, ConvertOptions(encode="jpeg"))
