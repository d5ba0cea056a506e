"""Short videos for tests, in which each frame shows its number."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

_BARS = 8
SIZE = (48, 64)
"""Height and width."""


def picture(number: int) -> NDArray[np.uint8]:
    """Bars that are the number's binary digits, below a red strip in a frame that is else grey."""
    height, width = SIZE
    pixels = np.full((height, width, 3), 30, np.uint8)
    for bar in range(_BARS):
        if number >> bar & 1:
            pixels[:, bar * width // _BARS : (bar + 1) * width // _BARS] = 220
    pixels[:8] = (220, 20, 20)
    return pixels


def numbers(clip: NDArray[np.uint8]) -> list[int]:
    """The numbers that frames show."""
    middles = clip[:, SIZE[0] // 2 :].mean(axis=(1, 3)).reshape(len(clip), _BARS, -1).mean(axis=2) > 125
    return [int(bits) for bits in middles @ (1 << np.arange(_BARS))]


def encode(
    num_frames: int = 60,
    file_format: str = "mp4",
    codec: str = "libx264",
    *,
    times: Sequence[int] | None = None,
    key_every: int = 12,
    b_frames: int = 2,
    index_first: bool = False,
    x264: str = "",
) -> bytes:
    """A video of 25 frames a second, or whose frames are shown at ``times`` in 1/100 s."""
    options = {"movflags": "faststart"} if index_first else {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video"
        with av.open(str(path), "w", format=file_format, options=options) as container:
            stream: Any = container.add_stream(codec, rate=25)
            stream.height, stream.width = SIZE
            stream.pix_fmt = "yuv420p"
            stream.codec_context.gop_size = key_every
            if x264:
                stream.codec_context.options = {"x264-params": x264}
            if codec in ("libx264", "mpeg4"):
                stream.codec_context.max_b_frames = b_frames
            if times is not None:
                stream.codec_context.time_base = Fraction(1, 100)
            for number in range(num_frames):
                frame = av.VideoFrame.from_ndarray(picture(number), format="rgb24")
                frame.pts = number if times is None else times[number]
                if times is not None:
                    frame.time_base = Fraction(1, 100)
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        return path.read_bytes()


def turned(file: bytes, quarters: int) -> bytes:
    """An MP4 that is to be shown turned clockwise by so many quarters (ISO/IEC 14496-12, 8.3.2)."""
    matrix = {1: (0, 1, -1, 0), 2: (-1, 0, 0, -1), 3: (0, -1, 1, 0)}[quarters]
    a, b, c, d = ((each << 16).to_bytes(4, "big", signed=True) for each in matrix)
    at = file.index(b"tkhd") + 4 + 40
    zero, one = bytes(4), (1 << 30).to_bytes(4, "big")
    return file[:at] + a + b + zero + c + d + zero + zero + zero + one + file[at + 36 :]
