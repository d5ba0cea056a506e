"""Broken videos cost one sample each, and readers do not grow (pains 36, 48)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker import ops
from stoker.errors import SampleError
from support import videos
from support.loading import batches_of, tar_of
from support.ops import run


def cut(file: bytes) -> bytes:
    return file[: len(file) * 6 // 10]


def test_broken_videos_cost_one_sample_each(tmp_path: Path) -> None:
    """Pain 36: an MP4 without its index, and such cut at 60 %, with the index behind and before the frames."""
    good, early = videos.encode(), videos.encode(index_first=True)
    files = [good, cut(good), early, cut(early), good[: good.index(b"moov") - 4], good]
    for broken, reason in ((files[1], "moov"), (files[3], "cut short"), (files[4], "without its index, the moov box")):
        with pytest.raises(SampleError, match=reason):
            run(ops.DecodeVideo("mp4", num_frames=2, start=0), {"mp4": broken})
    path = tar_of(tmp_path / "a.tar", {str(number): {"mp4": file} for number, file in enumerate(files)})
    steps = [ops.DecodeVideo("mp4", to="clip", num_frames=4, stride=2)]
    pipeline = stoker.Pipeline(stoker.tar(path), steps, batch_size=6, on_error="replace")
    inside = batches_of(pipeline)
    assert [int(batch["__mask__"].sum()) for batch in inside] == [3]
    for other in (batches_of(pipeline, num_workers=1), batches_of(stoker.Pipeline.from_json(pipeline.to_json()))):
        np.testing.assert_array_equal(other[0]["__mask__"], inside[0]["__mask__"])
        np.testing.assert_array_equal(other[0]["clip"], inside[0]["clip"])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_readers_do_not_grow() -> None:
    """Pain 48: 50 short clips, 200 random seeks each; memory and descriptors after the first rounds stay."""
    clips = [videos.encode(20 + number % 7, key_every=5) for number in range(50)]
    op = ops.DecodeVideo("mp4", num_frames=2, stride=2)
    rng = np.random.default_rng(48)
    resident, descriptors = [], []
    for _ in range(200):
        for clip in clips:
            run(op, {"mp4": clip}, [rng.random()])
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        descriptors.append(len(os.listdir("/proc/self/fd")))  # noqa: PTH208  # of names, not of paths
    assert max(resident[50:]) < resident[40] + (8 << 20)
    assert max(descriptors) == descriptors[0]
