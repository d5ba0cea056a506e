"""What goes to a GPU, and what does not: decided without one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stoker import Backend, ops
from stoker.backends.dali.graph import Form
from stoker.backends.dali.picture import DaliPicture
from stoker.backends.dali.runner import Runner
from stoker.backends.registry import compile_ops
from stoker.errors import DeviceLostError, SampleError, SampleOrigin, SpecError
from stoker.ops.op import Op
from stoker.sample import RawSample
from support import pictures

CROP = ops.RandomResizedCrop("image", 16)
FLIP = ops.RandomHorizontalFlip("image")


def prepared(file: bytes, backend: Backend, *, strict: bool = False, more: tuple[Op, ...] = (CROP,)) -> DaliPicture:
    program = compile_ops([ops.DecodeImage("image", strict=strict), *more], backend)
    raw = RawSample(SampleOrigin("mem://a", 0, "0"), {"image": file})
    sample = program.begin(raw, index=0, seed=0, epoch=0, uniforms=np.full(program.num_uniforms, 0.5))
    found = sample.fields["image"]
    assert isinstance(found, DaliPicture)
    return found


def gpu(**settings: Any) -> Backend:
    return Backend("dali", device="cuda:0", **settings)


def test_files_that_pillow_would_judge_go_there_unchecked() -> None:
    picture = prepared(pictures.jpeg(), gpu())
    assert picture.runner._file(picture) is not None


@pytest.mark.parametrize(
    "file",
    [
        pictures.jpeg_with_orientation(0, 6),
        pictures.cmyk_jpeg(),
        pictures.png(),
        pictures.rgb16_png(),
        pictures.jpeg()[:-2],
    ],
    ids=["turned", "ink", "png", "16 bits", "without its end"],
)
def test_what_dali_must_not_decode_stays_here(file: bytes) -> None:
    picture = prepared(file, gpu())
    assert picture.runner._file(picture) is None


def test_what_is_too_large_for_the_device_stays_here_and_is_made_small_here() -> None:
    backend = gpu(max_device_pixels=10_000)
    picture = prepared(pictures.jpeg(0, 200, 150), backend, more=(ops.Resize("image", 8),))
    assert picture.runner._file(picture) is None
    form = picture.runner._form(picture, "pixels", entry_on_gpu=False)
    assert not form.uses_gpu
    small = prepared(pictures.jpeg(0, 90, 90), backend, more=(ops.Resize("image", 8),))
    assert small.runner._form(small, "pixels", entry_on_gpu=False).uses_gpu


def test_a_strict_file_is_decoded_here_unless_placement_insists() -> None:
    """To check it takes what decoding it takes."""
    assert (picture := prepared(pictures.jpeg(), gpu(), strict=True)).runner._file(picture) is None
    insists = gpu(placement={"DecodeImage": "mixed"})
    assert (picture := prepared(pictures.jpeg(), insists, strict=True)).runner._file(picture) is not None
    damaged = prepared(pictures.damaged_scan(), insists, strict=True)
    with pytest.raises(SampleError):
        damaged.runner._file(damaged)


def test_ops_are_done_where_they_are_placed() -> None:
    backend = gpu(placement={"DecodeImage": "cpu", "RandomResizedCrop": "cpu"})
    picture = prepared(pictures.jpeg(), backend, more=(CROP, FLIP))
    form = picture.runner._form(picture, "file", entry_on_gpu=picture.runner._is_on_gpu("DecodeImage"))
    assert not form.entry_on_gpu
    assert [on_gpu for _, on_gpu in form.chain] == [False, True]
    assert form.uses_gpu
    assert not prepared(pictures.jpeg(), gpu(placement="cpu")).chain[0].on_gpu


def test_a_gpu_that_is_not_there_is_an_error_not_a_crash() -> None:
    picture = prepared(pictures.jpeg(), Backend("dali", device="cuda:15"))
    with pytest.raises(SpecError, match=r"(?s)'cuda:15'.*nvidia-smi.*It says"):
        picture.array()


def test_a_fork_is_told_that_it_has_no_gpu() -> None:
    runner = Runner(gpu())
    runner._pid = -1
    picture = prepared(pictures.jpeg(), gpu())
    form = picture.runner._form(picture, "pixels", entry_on_gpu=False)
    with pytest.raises(DeviceLostError, match="forked"):
        runner._run(form, [])
    with pytest.raises(DeviceLostError, match="forked"):
        list(runner._made(Form("file", "uint8", (), entry_on_gpu=True), []))
