"""Values become bytes under names that presets find."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest

from stoker.convert.fields import Json, extension_of, to_fields
from stoker.errors import SampleError
from support import pictures


def test_the_picture_and_the_label_are_named_as_webdataset_names_them() -> None:
    fields = to_fields({"image": pictures.jpeg(), "label": 7, "caption": "zwölf"})
    assert fields == {"jpg": pictures.jpeg(), "cls": b"7", "caption": "zwölf".encode()}


def test_the_first_choice_among_several_pictures_and_labels() -> None:
    fields = to_fields({"mask": pictures.png(), "image": pictures.jpeg(), "fine_label": 3, "label": 1})
    assert list(fields) == ["mask.png", "jpg", "fine_label", "cls"]


def test_a_record_without_its_picture_does_not_change_the_names_of_others() -> None:
    assert list(to_fields({"mask": pictures.png(), "image": None})) == ["mask.png"]


@pytest.mark.parametrize(
    "value,expected",
    [
        (True, b"1"),
        (-5, b"-5"),
        (0.1, b"0.1"),
        (np.float32(0.1), b"0.1"),
        (np.int64(2**62), str(2**62).encode()),
        ("", b""),
        (b"\0\xff", b"\0\xff"),
    ],
)
def test_values_as_text(value: Any, expected: bytes) -> None:
    assert to_fields({"x": value}) == {"x": expected}


def test_arrays_are_npy_files() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    (content,) = [to_fields({"emb": array})["emb.npy"]]
    assert np.array_equal(np.load(io.BytesIO(content)), array)
    assert to_fields({"emb.npy": array}) == {"emb.npy": content}


def test_structures_are_json() -> None:
    assert json.loads(bytes(to_fields({"meta": Json({"ä": [1, None]})})["meta.json"])) == {"ä": [1, None]}
    with pytest.raises(SampleError, match="makes no JSON"):
        to_fields({"meta": Json({"a": b"raw"})})


def test_an_array_of_objects_is_refused() -> None:
    with pytest.raises(SampleError, match="cannot be kept"):
        to_fields({"x": np.array([object()])})


def test_two_columns_of_one_field_and_none_at_all() -> None:
    with pytest.raises(SampleError, match="both make the field 'a'"):
        to_fields({"a": 1.5, "A": 2.5})
    with pytest.raises(SampleError, match="both make the field 'jpg'"):
        to_fields({"image": pictures.jpeg(), "JPG": b"text"})
    with pytest.raises(SampleError, match="no values"):
        to_fields({"a": None})


def test_formats_are_told_by_content() -> None:
    for name, extension in (("WEBP", "webp"), ("PNG", "png"), ("JPEG", "jpg"), ("BMP", "bmp"), ("TIFF", "tiff")):
        assert extension_of(pictures.encode(pictures.pixels(), name)) == extension
    assert extension_of(b"BMW, text that begins like a bitmap") is None
    assert extension_of("text") is None
