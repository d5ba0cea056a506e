"""Kernels for fields that are not pictures."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from stoker.backends.registry import compile_ops
from stoker.errors import SampleError, SampleOrigin
from stoker.ops import DecodeJson, DecodeNumpy, Label, Rename, Select
from stoker.ops.op import Op
from stoker.sample import RawSample

ORIGIN = SampleOrigin("s3://bucket/0.tar", 4, "dog")


def run(op: Op, **fields: Any) -> dict[str, Any]:
    """The fields of a sample after one op."""
    raw = RawSample(ORIGIN, fields)
    return compile_ops([op]).run(raw, index=0, seed=0, epoch=0, uniforms=np.empty(0)).fields


def npy(array: np.ndarray, version: tuple[int, int] | None = None, **options: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    "raw, number",
    [(b"7", 7), (b" -12\n", -12), (memoryview(b"x+3")[1:], 3), ("5", 5), (5, 5), (np.uint8(5), 5),
     (b"9223372036854775807", 2**63 - 1)],
)  # fmt: skip
def test_labels_are_int64(raw: Any, number: int) -> None:
    found = run(Label("cls"), cls=raw)["cls"]
    assert found == number
    assert type(found) is np.int64


@pytest.mark.parametrize(
    "raw", [b"", b"7.0", b"cat", b"1_000", "٣", b"\xff", b"9223372036854775808", b"9" * 5000, 1.5, None, 2**63]
)
def test_what_is_no_integer_is_a_bad_sample(raw: Any) -> None:
    with pytest.raises(SampleError, match="expected") as caught:
        run(Label("cls"), cls=raw)
    assert caught.value.op == "Label('cls')"
    assert caught.value.origin == ORIGIN
    assert len(str(caught.value)) < 200


def test_labels_by_name_of_class() -> None:
    assert run(Label("cls", classes=("cat", "dog")), cls=b"dog\n")["cls"] == 1
    assert run(Label("cls", classes={"cat": 7}), cls="cat")["cls"] == 7
    with pytest.raises(SampleError, match="no class is named 'dgo'; did you mean 'dog'"):
        run(Label("cls", classes=("cat", "dog")), cls=b"dgo")


@pytest.mark.parametrize(
    "op", [Label("x"), DecodeJson("x"), DecodeNumpy("x"), Select("x"), Rename({"x": "y"})], ids=lambda op: op.label
)
def test_a_missing_field_lists_those_that_are_there(op: Op) -> None:
    with pytest.raises(SampleError, match="no field 'x'; this sample has: cls, jpg") as caught:
        run(op, jpg=b"", cls=b"1")
    assert caught.value.origin == ORIGIN
    assert caught.value.op == op.label


def test_a_missing_field_may_have_a_default() -> None:
    assert run(Label("cls", to="label", default=-1)) == {"label": -1}
    assert type(run(Label("cls", default=-1))["cls"]) is np.int64
    assert run(DecodeJson("json", default=None)) == {"json": None}
    array = run(DecodeNumpy("npy", default=[0.0, 1.0]))["npy"]
    assert array.tolist() == [0, 1]


def test_a_default_is_not_shared_between_samples() -> None:
    op = DecodeJson("json", default={"tags": []})
    run(op)["json"]["tags"].append(1)
    assert run(op)["json"] == {"tags": []}


@pytest.mark.parametrize(
    "op",
    [
        Label("x", missing="skip"), DecodeJson("x", to="y", missing="skip"), DecodeNumpy("x", missing="skip"),
        Rename({"x": "y"}, missing="skip"), Select("x", "cls", missing="skip"),
    ],
    ids=lambda op: op.label,
)  # fmt: skip
def test_a_missing_field_may_be_skipped(op: Op) -> None:
    assert run(op, cls=1) == {"cls": 1}


def test_the_raw_field_is_dropped_when_the_result_has_another_name() -> None:
    assert run(Label("cls", to="label"), cls=b"1", jpg=b"") == {"jpg": b"", "label": 1}


@pytest.mark.parametrize(
    "raw", [b'{"a": [1, null, "\xc3\xa9"]}', '{"a": [1, null, "é"]}', b'\xef\xbb\xbf{"a": [1, null, "\xc3\xa9"]}']
)
def test_json_is_read(raw: Any) -> None:
    assert run(DecodeJson("json"), json=raw)["json"] == {"a": [1, None, "é"]}
    assert run(DecodeJson("json"), json=memoryview(json.dumps([1]).encode()))["json"] == [1]


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b'{"a": 1} x'])
def test_what_is_no_json_is_a_bad_sample(raw: bytes) -> None:
    with pytest.raises(SampleError, match="not JSON"):
        run(DecodeJson("json"), json=raw)


@given(
    st_numpy.arrays(
        st.sampled_from(["<f4", ">i2", "u1", "?", "<c8", "<M8[s]", "S3", "<U2"]),
        st_numpy.array_shapes(min_dims=0, min_side=0),
    )
)
def test_any_npy_file_is_read_as_numpy_reads_it(array: np.ndarray) -> None:
    for stored in (array, np.asfortranarray(array)):
        found = run(DecodeNumpy("npy"), npy=memoryview(npy(stored)))["npy"]
        assert found.dtype == stored.dtype
        assert found.shape == stored.shape
        assert found.tobytes() == stored.tobytes()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_npy_is_read(version: tuple[int, int]) -> None:
    array = np.arange(6).reshape(2, 3)
    assert run(DecodeNumpy("npy"), npy=npy(array, version))["npy"].tolist() == array.tolist()


def test_an_array_is_a_view_of_the_bytes_it_came_in() -> None:
    raw = bytearray(npy(np.arange(4, dtype=np.int64)))
    found = run(DecodeNumpy("npy"), npy=memoryview(raw))["npy"]
    raw[-8] = 9
    assert found.tolist() == [0, 1, 2, 9]


def test_npz_files_are_dicts_of_arrays() -> None:
    file = io.BytesIO()
    np.savez(file, a=np.arange(3), b=np.array("text"))
    found = run(DecodeNumpy("npz"), npz=file.getvalue())["npz"]
    assert found["a"].tolist() == [0, 1, 2]
    assert found["b"] == "text"


def test_pickled_objects_are_never_read() -> None:
    objects = np.array([{"a": 1}], object)
    with pytest.raises(SampleError, match="never read"):
        run(DecodeNumpy("npy"), npy=npy(objects, allow_pickle=True))
    file = io.BytesIO()
    np.savez(file, a=objects)
    with pytest.raises(SampleError, match="npz"):
        run(DecodeNumpy("npz"), npz=file.getvalue())


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"\x93NUMPY", b"\x93NUMPY\x09\x00\x04\x00abcd", b"text", b"PK\x03\x04nonsense",
        npy(np.arange(9))[:-1], npy(np.arange(9))[:40],
    ],
)  # fmt: skip
def test_broken_array_files_are_bad_samples(raw: bytes) -> None:
    with pytest.raises(SampleError, match=r"not an|cut short"):
        run(DecodeNumpy("npy"), npy=raw)


def test_select_keeps_its_order_and_drops_the_rest() -> None:
    assert list(run(Select("b", "a"), a=1, b=2, c=3).items()) == [("b", 2), ("a", 1)]


def test_rename_is_done_at_once_and_in_place() -> None:
    assert list(run(Rename({"a": "b", "b": "a"}), a=1, x=0, b=2).items()) == [("b", 1), ("x", 0), ("a", 2)]
    with pytest.raises(SampleError, match=r"'a' to 'b'.*has a field of this name"):
        run(Rename({"a": "b"}), a=1, b=2)
