"""What must hold of videos: a window is that part of the whole, whoever decodes it."""

from __future__ import annotations

import functools
import io
from typing import Any, Literal

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import stoker
from stoker import ops
from stoker.errors import SampleError
from stoker.testing import assert_equal_batches
from support import videos
from support.loading import load, tar_of
from support.ops import run

KINDS = ("mp4 libx264", "matroska libx264", "mpegts libx264", "webm libvpx-vp9", "avi mpeg4", "mov mpeg4")


@functools.cache
def file_of(kind: str, num_frames: int) -> bytes:
    file_format, codec = kind.split()
    return videos.encode(num_frames, file_format, codec, b_frames=3)


@functools.cache
def whole(kind: str, num_frames: int) -> NDArray[np.uint8]:
    """All frames as FFmpeg gives them, one after the other."""
    with av.open(io.BytesIO(file_of(kind, num_frames)), "r") as container:
        return np.stack([frame.to_ndarray(format="rgb24", threads=1) for frame in container.decode(video=0)])


@given(
    kind=st.sampled_from(KINDS),
    num_frames_there=st.sampled_from([1, 13, 40]),
    num_frames=st.integers(1, 9),
    stride=st.integers(1, 14),
    start=st.one_of(st.sampled_from(["random", "center"]), st.integers(0, 45)),
    short=st.sampled_from(["loop", "pad"]),
    uniform=st.floats(0, 1, exclude_max=True),
)
@settings(max_examples=150)
def test_a_window_is_that_part_of_the_whole(
    kind: str,
    num_frames_there: int,
    num_frames: int,
    stride: int,
    start: Any,
    short: Literal["loop", "pad"],
    uniform: float,
) -> None:
    op = ops.DecodeVideo("mp4", num_frames=num_frames, stride=stride, start=start, short=short)
    uniforms = [uniform] * op.num_uniforms
    expected = whole(kind, num_frames_there)
    assert len(expected) == num_frames_there
    wanted = op.frames(num_frames_there, uniforms)
    assert wanted is not None
    found = run(op, {"mp4": file_of(kind, num_frames_there)}, uniforms).fields["mp4"]
    np.testing.assert_array_equal(np.asarray(found), expected[wanted])


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two dozen videos of several lengths and kinds; every fifth ends at 60 %."""
    files = [file_of(KINDS[row % 5 % 2], 20 + row % 7) for row in range(24)]
    content = {
        f"{row:04d}": {"mp4": file[: len(file) * 6 // 10] if row % 5 == 3 else file, "cls": str(row).encode()}
        for row, file in enumerate(files)
    }
    return tar_of(tmp_path_factory.mktemp("videos") / "a.tar", content)


def pipeline(shard: str, **more: Any) -> stoker.Pipeline:
    steps = [ops.DecodeVideo("mp4", to="clip", num_frames=3, stride=4), ops.Label("cls")]
    return stoker.Pipeline(stoker.tar(shard), steps, **{"batch_size": 4, "shuffle": True, "seed": 5, **more})


@pytest.mark.parametrize("on_error", ["replace", "drop"])
def test_the_stream_does_not_depend_on_who_decodes(shard: str, on_error: Any) -> None:
    """Threads, worker processes, and epochs in which the indices are known already."""
    over = pipeline(shard, on_error=on_error)
    with load(over, num_threads=1) as loader:
        epochs = [list(loader), list(loader)]
        assert loader.stats()["bad_samples"] == 2 * 5
    ways: list[dict[str, Any]] = [{"num_threads": 2}, {"num_workers": 2}]
    for way in ways:
        with load(over, **way) as loader:
            for expected in epochs:
                assert_equal_batches(list(loader), expected)


def test_each_epoch_draws_other_windows(shard: str) -> None:
    with load(pipeline(shard, on_error="drop", shuffle=False)) as loader:
        one, other = list(loader), list(loader)
    firsts = [[videos.numbers(clip)[0] for batch in epoch for clip in batch["clip"]] for epoch in (one, other)]
    assert firsts[0] != firsts[1]
    for batch in one:
        for clip in batch["clip"]:
            assert (np.diff(videos.numbers(clip)) == 4).all()


def test_raise_names_the_sample(shard: str) -> None:
    over = pipeline(shard, shuffle=False, batch_size=1, lanes=1)
    with load(over) as loader:
        batches = iter(loader)
        for row in range(3):
            assert next(batches)["__key__"] == [f"{row:04d}"]
        with pytest.raises(SampleError, match=r"a\.tar row 3 \(key '0003'\): DecodeVideo\('mp4'\): .*cut short"):
            next(batches)
