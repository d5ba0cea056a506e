"""Kernel of DecodeVideo: from a key frame on, up to the last frame wanted."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator, Sequence
from typing import Any

import crc32c
import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu.packages import need
from stoker.backends.cpu.video_file import check_whole
from stoker.backends.cpu.video_index import IndexCache, VideoIndex, make_index, packets
from stoker.backends.cpu.video_mirror import is_mirrored
from stoker.backends.program import Kernel
from stoker.backends.registry import implements
from stoker.errors import SampleError
from stoker.ops.decode_video import DecodeVideo
from stoker.sample import Sample

_FORMATS = "mov,matroska,webm,avi,mpegts,mpeg,mpegvideo,ogg,flv,asf,gif,ivf"
"""No play lists, whose entries FFmpeg would open: a sample must not name files or addresses of this machine."""
_READ_BYTES = 1 << 17
"""FFmpeg takes the GIL for each read."""

_indices = IndexCache()


@implements(DecodeVideo)
def decode_video(op: DecodeVideo) -> Kernel:
    """Decode with PyAV, in the thread that asks. Nothing stays open from one sample to the next."""
    av = need("av")

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:
        file = sample.fields[op.source]
        if not isinstance(file, bytes | memoryview):
            raise SampleError(f"field {op.source!r} holds {type(file).__name__}, expected the bytes of a video file")
        check_whole(file)
        key = (sample.origin.url, sample.origin.row, len(file), crc32c.crc32c(file))
        try:
            clip = _decode(av, file, op, uniforms.tolist(), key)
        except av.error.FFmpegError as error:
            raise SampleError(f"no video file, or a damaged one: {error.strerror}") from error
        if op.target != op.source:
            del sample.fields[op.source]
        sample.fields[op.target] = clip

    return kernel


def _decode(
    av: Any, file: bytes | memoryview, op: DecodeVideo, uniforms: Sequence[float], key: tuple[str, int, int, int]
) -> NDArray[np.uint8]:
    content = io.BytesIO(file)
    index = _indices.get(key)
    if index is None:
        with _opened(av, content) as container:
            index = make_index(container, _video_stream(container, op))
        _indices.put(key, index)
    wanted = op.frames(len(index.times), uniforms)
    if wanted is None:
        raise SampleError(
            f"{len(index.times)} frames, of which {op.num_frames} were wanted at a stride of {op.stride}, from "
            f"{op.start if isinstance(op.start, int) else 0} on; short='loop' or 'pad' fills them up"
        )
    with _opened(av, content) as container:
        stream = _video_stream(container, op)
        frames = _frames(container, stream, index, sorted(set(wanted)))
        return _clip(frames, wanted, op, _Upright(is_mirrored=is_mirrored(file, stream.id)))


def _opened(av: Any, content: io.BytesIO) -> Any:
    content.seek(0)
    options = {"format_whitelist": _FORMATS}
    more = {} if _is_from(19) else {"metadata_errors": "ignore"}  # from then on it is always so
    return av.open(content, options=options, buffer_size=_READ_BYTES, **more)


def _video_stream(container: Any, op: DecodeVideo) -> Any:
    """The first video stream that is no cover picture, set to decode in this thread."""
    for stream in container.streams.video:
        if not stream.disposition & stream.disposition.attached_pic:
            if stream.codec_context is None:
                raise SampleError("FFmpeg has no decoder for this video, or its header is damaged")
            stream.codec_context.thread_count = 1
            _check_size(stream.codec_context, op)
            return stream
    raise SampleError("the file holds no video")


def _check_size(sized: Any, op: DecodeVideo) -> None:
    width, height = sized.width, sized.height
    if width * height > op.max_pixels:
        raise SampleError(f"frames of {width} × {height} are more than max_pixels={op.max_pixels}")
    if op.num_frames * width * height * 3 > op.max_bytes:
        raise SampleError(f"{op.num_frames} frames of {width} × {height} are more than max_bytes={op.max_bytes}")


def _frames(container: Any, stream: Any, index: VideoIndex, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Decode the frames of rising numbers: what is shown at the time of each, for some packets show nothing."""
    times = [int(index.times[number]) for number in numbers]
    place, before = 0, None
    for time, frame in _from_before(container, stream, index, times[0]):
        while place < len(times) and times[place] < time and before is not None:
            yield numbers[place], before
            place += 1
        if place < len(times) and times[place] == time:
            yield numbers[place], frame
            place += 1
        if place == len(times):
            return
        before = frame
    raise SampleError(f"frame {numbers[place]} cannot be decoded: the video is damaged or cut short")


def _from_before(container: Any, stream: Any, index: VideoIndex, time: int) -> Iterator[tuple[int, Any]]:
    """Decode frames, each with its time, from one on that is not shown after ``time``.

    Behind some key frames (recovery points of H.264) nothing is shown for a while: an earlier one is tried then.
    """
    if index.is_counted:
        yield from enumerate(frame for packet in packets(container, stream) for frame in packet.decode())
        return
    nearest = index.key_before(time)
    for key in sorted({nearest, max(nearest - 1, 0), 0} if nearest >= 0 else (), reverse=True):
        frames = _timed(_from_key(container, stream, index, key))
        first = next(frames, None)
        if first is not None and first[0] <= time:
            yield first
            yield from frames
            return


def _timed(frames: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    for frame in frames:
        if frame.pts is None:
            raise SampleError("the decoder does not say when a frame is shown")
        yield frame.pts, frame


def _from_key(container: Any, stream: Any, index: VideoIndex, key: int) -> Iterator[Any]:
    """Decode from a key frame on. Containers seek by the time of showing or of decoding, some past it."""
    time, is_found = int(index.key_times[key]), False
    for seek in (time, int(index.key_seeks[key]), int(index.key_seeks[0])):
        container.seek(seek, stream=stream)
        for packet in packets(container, stream):
            if not is_found and packet.pts != time:
                if packet.is_keyframe and packet.pts is not None and packet.pts > time:
                    break
                continue
            is_found = True
            yield from packet.decode()
        if is_found:
            return


def _clip(
    frames: Iterator[tuple[int, Any]], wanted: Sequence[int], op: DecodeVideo, upright: _Upright
) -> NDArray[np.uint8]:
    """The frames as pixels, each in all places where it is wanted."""
    clip, places = None, dict[int, list[int]]()
    for place, number in enumerate(wanted):
        places.setdefault(number, []).append(place)
    for number, frame in frames:
        if frame.is_corrupt:
            raise SampleError(f"frame {number} is damaged")
        _check_size(frame, op)  # the container may have said something else
        pixels = upright.pixels(frame)
        if clip is None:
            clip = np.empty((len(wanted), *pixels.shape), np.uint8)
        if pixels.shape != clip.shape[1:]:
            raise SampleError(f"frame {number} has the shape {pixels.shape}, those before it {clip.shape[1:]}")
        clip[places[number]] = pixels
    assert clip is not None, "at least one frame is wanted, or an error was raised"
    return clip


class _Upright:
    """Makes the frames of one clip RGB as a viewer shows it, one after the other in the same buffers of FFmpeg's."""

    def __init__(self, *, is_mirrored: bool) -> None:
        self._is_mirrored = is_mirrored
        self._reformat = need("av.video.reformatter").VideoReformatter().reformat
        self._one_thread = {"threads": 1} if _is_from(17) else {}  # before, there was never more than one

    def pixels(self, frame: Any) -> NDArray[np.uint8]:
        """Mirrored first, for the rotation, counter-clockwise as that of rot90, is where the rows go then."""
        quarters, rest = divmod(frame.rotation, 90)
        if rest:
            raise SampleError(f"the video is turned by {frame.rotation}°, which is no multiple of 90")
        pixels: NDArray[np.uint8] = self._reformat(frame, format="rgb24", **self._one_thread).to_ndarray()
        return np.rot90(pixels[::-1] if self._is_mirrored else pixels, quarters)


@functools.cache
def _is_from(major: int) -> bool:
    """Whether PyAV is of this version or newer."""
    return int(need("av").__version__.split(".")[0]) >= major
