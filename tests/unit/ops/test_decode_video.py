"""DecodeVideo: which frames, from which files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker import ops
from stoker.errors import SampleError, SpecError
from support import videos
from support.ops import run

MP4 = videos.encode()


def decoded(op: ops.DecodeVideo, file: Any, uniforms: list[float] | None = None) -> NDArray[np.uint8]:
    return np.asarray(run(op, {"mp4": file}, uniforms).fields["mp4"])


@pytest.mark.parametrize(
    "file_format, codec",
    [
        ("mp4", "libx264"),
        ("mov", "mpeg4"),
        ("matroska", "libx264"),
        ("webm", "libvpx-vp9"),
        ("webm", "libvpx"),
        ("avi", "mpeg4"),
        ("avi", "libx264"),
        ("mpegts", "libx264"),
    ],
)
def test_frames_are_counted_as_they_are_shown(file_format: str, codec: str) -> None:
    """From each place, in files with key frames, B-frames and other codecs; once more with the index kept."""
    file = videos.encode(50, file_format, codec)
    for first in (0, 1, 11, 12, 13, 30, 41):
        op = ops.DecodeVideo("mp4", num_frames=5, stride=2, start=first)
        for _ in range(2):
            found = decoded(op, file)
            assert found.shape == (5, *videos.SIZE, 3)
            assert videos.numbers(found) == list(range(first, first + 9, 2))


@pytest.mark.parametrize("file_format", ["mp4", "matroska", "mpegts"])
@pytest.mark.parametrize("x264", ["keyint=12:bframes=3:open-gop=1:b-pyramid=normal", "keyint=12:intra-refresh=1"])
def test_a_part_is_that_part_of_the_whole(file_format: str, x264: str) -> None:
    """Also where frames refer to ones before a key frame, or nothing is shown for a while behind it."""
    file = videos.encode(50, file_format, x264=x264)
    whole = decoded(ops.DecodeVideo("mp4", num_frames=50, start=0), file)
    assert videos.numbers(whole) == list(range(50))
    for first in range(47):
        part = decoded(ops.DecodeVideo("mp4", num_frames=2, stride=2, start=first), file)
        np.testing.assert_array_equal(part, whole[first : first + 3 : 2])


@pytest.mark.parametrize("file_format", ["mp4", "matroska"])
def test_time_between_frames_may_vary(file_format: str) -> None:
    times = np.cumsum(np.random.default_rng(1).integers(2, 30, 40)).tolist()
    file = videos.encode(40, file_format, times=times)
    found = decoded(ops.DecodeVideo("mp4", num_frames=6, stride=3, start=17), file)
    assert videos.numbers(found) == [17, 20, 23, 26, 29, 32]


def test_colours_are_those_of_the_file() -> None:
    found = decoded(ops.DecodeVideo("mp4", num_frames=1, start=21), MP4)[0].astype(int)
    expected = videos.picture(21).astype(int)
    assert np.abs(found - expected).mean() < 12


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_a_rotation_is_applied(quarters: int) -> None:
    op = ops.DecodeVideo("mp4", num_frames=4, start=5)
    found = decoded(op, videos.turned(MP4, quarters))
    np.testing.assert_array_equal(found, np.rot90(decoded(op, MP4), -quarters, axes=(1, 2)))


def test_the_start_is_a_function_of_the_number_of_frames() -> None:
    op = ops.DecodeVideo("mp4", num_frames=4, stride=3)
    assert op.num_uniforms == 1
    firsts = set()
    for uniform in (0.0, 0.4, 0.77, 1 - 2**-53):
        frames = op.frames(60, [uniform])
        assert frames is not None
        firsts.add(frames[0])
        assert videos.numbers(decoded(op, MP4, [uniform])) == frames
    assert firsts == {0, 20, 39, 50}
    center = ops.DecodeVideo("mp4", num_frames=4, stride=3, start="center")
    assert center.num_uniforms == 0
    assert center.frames(60, []) == [25, 28, 31, 34]


def test_short_videos_are_errors_or_looped_or_held() -> None:
    file = videos.encode(5)
    with pytest.raises(SampleError, match="5 frames, of which 4 were wanted at a stride of 2"):
        decoded(ops.DecodeVideo("mp4", num_frames=4, stride=2), file)
    loop = ops.DecodeVideo("mp4", num_frames=4, stride=2, short="loop")
    assert videos.numbers(decoded(loop, file)) == [0, 2, 4, 1]
    pad = ops.DecodeVideo("mp4", num_frames=4, stride=2, short="pad", start=1)
    assert videos.numbers(decoded(pad, file)) == [1, 3, 4, 4]
    beyond = ops.DecodeVideo("mp4", num_frames=2, short="pad", start=99)
    assert videos.numbers(decoded(beyond, file)) == [4, 4]


def test_large_videos_are_refused() -> None:
    with pytest.raises(SampleError, match="max_pixels=3000"):
        decoded(ops.DecodeVideo("mp4", num_frames=1, max_pixels=3000), MP4)
    with pytest.raises(SampleError, match="16 frames of 64 × 48 are more than max_bytes=100000"):
        decoded(ops.DecodeVideo("mp4", max_bytes=100_000), MP4)


MKV = videos.encode(file_format="matroska")
AVI = videos.encode(file_format="avi", codec="mpeg4")


@pytest.mark.parametrize(
    "file, reason",
    [
        (b"", "is empty"),
        (b"no video at all, but a text", "no video file"),
        (b"#EXTM3U\n#EXTINF:1,\n/etc/hostname\n", "no video file"),
        (b"ffconcat version 1.0\nfile /etc/hostname\n", "no video file"),
        (MKV[: len(MKV) * 6 // 10], "cut short"),
        (AVI[: len(AVI) * 6 // 10], "cut short"),
        (MP4[:24], "moov"),
        (MP4.replace(b"avc1", b"none"), "no decoder|no video"),
        ("text", "expected the bytes"),
    ],
    ids=["empty", "text", "playlist", "concat", "mkv", "avi", "start", "codec", "str"],
)
def test_what_cannot_be_decoded_is_a_bad_sample(file: Any, reason: str) -> None:
    with pytest.raises(SampleError, match=reason):
        decoded(ops.DecodeVideo("mp4"), file)


def test_wrong_bytes_in_a_frame_are_found() -> None:
    at = MP4.index(b"mdat") + 900
    with pytest.raises(SampleError, match="damaged"):
        decoded(ops.DecodeVideo("mp4", num_frames=60, start=0), MP4[:at] + b"\xff" * 400 + MP4[at + 400 :])


@pytest.mark.parametrize(
    "wrong", [{"num_frames": 0}, {"stride": 0}, {"start": -1}, {"start": "end"}, {"short": "cut"}, {"max_bytes": 0}]
)
def test_wrong_arguments_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=next(iter(wrong))):
        ops.DecodeVideo("mp4", **wrong)
