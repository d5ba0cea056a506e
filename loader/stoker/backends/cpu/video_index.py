"""Where the frames of a video lie, known without decoding any."""

from __future__ import annotations

import bisect
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SampleError

_CACHED_BYTES = 16 << 20
_ENTRY_BYTES = 1024
"""About what an index takes beside its numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class VideoIndex:
    """Times in the stream's unit: ``times`` of the frames in the order they are shown, ``key_times`` of key frames.

    ``key_seeks`` is what to seek for to get to each key frame in containers that order packets by decoding time.
    ``is_counted``: the container gives no times; they are the frames' numbers, and no seek is possible.
    """

    times: NDArray[np.int64]
    key_times: NDArray[np.int64]
    key_seeks: NDArray[np.int64]
    is_counted: bool = False

    @property
    def num_bytes(self) -> int:
        """The memory it takes."""
        return _ENTRY_BYTES + self.times.nbytes + self.key_times.nbytes + self.key_seeks.nbytes

    def key_before(self, time: int) -> int:
        """Return the number of the last key frame that is not shown after ``time``; -1 without one."""
        return bisect.bisect_right(self.key_times, time) - 1


def packets(container: Any, stream: Any) -> Iterator[Any]:
    """The packets of a stream from here on, then an empty one. Raises SampleError for one of an unknown stream."""
    try:
        yield from container.demux(stream)
    except IndexError as error:  # PyAV knows the streams that were there when the file was opened
        raise SampleError("a packet belongs to a stream that the file did not announce") from error


def make_index(container: Any, stream: Any) -> VideoIndex:
    """Read all packets of a stream. Raises SampleError if there is none, or one is damaged."""
    times, keys, num_packets, num_timed = list[int](), list[tuple[int, int]](), 0, 0
    for packet in packets(container, stream):
        if packet.size == 0:
            continue
        if packet.is_corrupt:
            raise SampleError(f"packet {num_packets} of the video is damaged or cut short")
        num_packets += 1
        if packet.pts is None:
            continue
        num_timed += 1
        if packet.is_keyframe:
            keys.append((packet.pts, packet.pts if packet.dts is None else packet.dts))
        if not packet.is_discard:
            times.append(packet.pts)
    if not num_packets:
        raise SampleError("the video has no frames")
    has_times = container.format.name != "avi" or not stream.codec_context.has_b_frames  # AVI knows no order of showing
    if not keys or not has_times or num_timed < num_packets or len(set(times)) < len(times):
        none = np.empty(0, np.int64)
        return VideoIndex(np.arange(num_packets), none, none, is_counted=True)
    key_times, key_seeks = np.array(sorted(keys), np.int64).T
    return VideoIndex(np.array(sorted(times), np.int64), key_times.copy(), key_seeks.copy())


class IndexCache:
    """The indices used last, bounded in bytes; safe for many threads."""

    def __init__(self, max_bytes: int = _CACHED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._indices: OrderedDict[Hashable, VideoIndex] = OrderedDict()
        self.num_bytes = 0

    def get(self, key: Hashable) -> VideoIndex | None:
        """Return the index of a file, if it is there."""
        with self._lock:
            if key in self._indices:
                self._indices.move_to_end(key)
            return self._indices.get(key)

    def put(self, key: Hashable, index: VideoIndex) -> None:
        """Keep an index, instead of those not used for longest; one that is too large is not kept."""
        with self._lock:
            if key in self._indices or index.num_bytes > self._max_bytes:
                return
            self._indices[key] = index
            self.num_bytes += index.num_bytes
            while self.num_bytes > self._max_bytes:
                _, oldest = self._indices.popitem(last=False)
                self.num_bytes -= oldest.num_bytes
