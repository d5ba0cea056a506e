"""The index of a video, and how many of them are kept."""

from __future__ import annotations

import io

import av
import numpy as np

from stoker.backends.cpu.video_index import IndexCache, VideoIndex, make_index
from support import videos


def index_of(num_frames: int) -> VideoIndex:
    with av.open(io.BytesIO(videos.encode(num_frames))) as container:
        return make_index(container, container.streams.video[0])


def test_times_rise_and_key_frames_are_among_them() -> None:
    index = index_of(50)
    assert len(index.times) == 50
    assert (np.diff(index.times) > 0).all()
    assert set(index.key_times.tolist()) <= set(index.times.tolist())
    assert len(index.key_times) >= 5
    assert index.key_before(int(index.times[0]) - 1) == -1
    for number, time in enumerate(index.key_times.tolist()):
        assert index.key_before(time) == number


def test_what_was_used_last_is_kept_within_the_bound() -> None:
    index = index_of(10)
    cache = IndexCache(3 * index.num_bytes)
    for key in "abc":
        cache.put(key, index)
    assert cache.get("a") is index
    cache.put("d", index)
    assert [cache.get(key) is not None for key in "abcd"] == [True, False, True, True]
    assert cache.num_bytes == 3 * index.num_bytes
    small = IndexCache(100)
    small.put("a", index)
    assert small.get("a") is None
    assert small.num_bytes == 0
