"""Kernel of DecodeVideo: from a key frame on, up to the last frame wanted."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import crc32c
import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu.packages import need
from stoker.backends.cpu.video_file import check_whole
from stoker.backends.cpu.video_index import IndexCache, VideoIndex, make_index
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
    options = {"format_whitelist": _FORMATS}
    with av.open(io.BytesIO(file), metadata_errors="ignore", options=options, buffer_size=_READ_BYTES) as container:
        stream = _video_stream(container)
        _check_size(stream.codec_context, op)
        index, is_fresh = _indices.get(key), False
        if index is None:
            index, is_fresh = make_index(container, stream), True
            _indices.put(key, index)
        wanted = op.frames(len(index.times), uniforms)
        if wanted is None:
            raise SampleError(
                f"{len(index.times)} frames, of which {op.num_frames} were wanted at a stride of {op.stride}, from "
                f"{op.start if isinstance(op.start, int) else 0} on; short='loop' or 'pad' fills them up"
            )
        return _clip(_frames(container, stream, index, sorted(set(wanted)), is_fresh=is_fresh), wanted, op)


def _video_stream(container: Any) -> Any:
    """The first video stream that is no cover picture, set to decode in this thread and to hide no damage."""
    for stream in container.streams.video:
        if not stream.disposition & stream.disposition.attached_pic:
            stream.codec_context.thread_count = 1
            stream.codec_context.options = {"err_detect": "explode"}
            return stream
    raise SampleError("the file holds no video")


def _check_size(sized: Any, op: DecodeVideo) -> None:
    width, height = sized.width, sized.height
    if width * height > op.max_pixels:
        raise SampleError(f"frames of {width} × {height} are more than max_pixels={op.max_pixels}")
    if op.num_frames * width * height * 3 > op.max_bytes:
        raise SampleError(f"{op.num_frames} frames of {width} × {height} are more than max_bytes={op.max_bytes}")


def _frames(
    container: Any, stream: Any, index: VideoIndex, numbers: Sequence[int], *, is_fresh: bool
) -> Iterator[tuple[int, Any]]:
    """Decode the frames of rising numbers: what is shown at the time of each, for some packets show nothing."""
    times = [int(index.times[number]) for number in numbers]
    place, before = 0, None
    for count, frame in enumerate(_decoded(container, stream, index, times[0], is_fresh=is_fresh)):
        time = count if index.is_counted else frame.pts
        if time is None:
            raise SampleError("the decoder does not say when a frame is shown")
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


def _decoded(container: Any, stream: Any, index: VideoIndex, time: int, *, is_fresh: bool) -> Iterator[Any]:
    """Decode from the key frame before a time on."""
    key = index.key_before(time)
    if index.is_counted or key < 0:
        if is_fresh:
            container.seek(0, stream=stream)
        for packet in container.demux(stream):
            yield from packet.decode()
        return
    first, is_first = int(index.key_times[key]), True
    for seek in (first, int(index.key_seeks[key]), int(index.key_seeks[0])):
        container.seek(seek, stream=stream)
        for packet in container.demux(stream):
            if is_first and packet.pts != first:
                if packet.size == 0 or (packet.is_keyframe and packet.pts is not None and packet.pts > first):
                    break  # beyond it: some containers seek by decoding time
                continue
            is_first = False
            yield from packet.decode()
        if not is_first:
            return
    raise SampleError("a key frame cannot be found again")


def _clip(frames: Iterator[tuple[int, Any]], wanted: Sequence[int], op: DecodeVideo) -> NDArray[np.uint8]:
    """The frames as pixels, each in all places where it is wanted."""
    clip = None
    for number, frame in frames:
        if frame.is_corrupt:
            raise SampleError(f"frame {number} is damaged")
        _check_size(frame, op)  # the container may have said something else
        pixels = _pixels(frame)
        if clip is None:
            clip = np.empty((len(wanted), *pixels.shape), np.uint8)
        if pixels.shape != clip.shape[1:]:
            raise SampleError(f"frame {number} has the shape {pixels.shape}, those before it {clip.shape[1:]}")
        for place, each in enumerate(wanted):
            if each == number:
                clip[place] = pixels
    assert clip is not None, "at least one frame is wanted"
    return clip


def _pixels(frame: Any) -> NDArray[np.uint8]:
    """RGB, upright: the rotation is counter-clockwise, as that of rot90."""
    quarters, rest = divmod(frame.rotation, 90)
    if rest:
        raise SampleError(f"the video is turned by {frame.rotation}°, which is no multiple of 90")
    pixels: NDArray[np.uint8] = frame.reformat(format="rgb24", threads=1).to_ndarray()
    return np.rot90(pixels, quarters)
