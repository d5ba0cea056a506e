"""Bytes of a video file become frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from stoker.errors import SpecError
from stoker.ops.chance import whole_below
from stoker.ops.op import Op
from stoker.spec import spec


@spec
class DecodeVideo(Op):
    """Decode ``num_frames`` frames, every ``stride``-th, of MP4, Matroska, WebM, AVI or MPEG, told apart by content.

    The result is frames × height × width × 3, RGB bytes, turned and mirrored as the file says. Frames are counted in
    the order in which they are shown, whatever the time between them.

    * ``start``: the first frame, ``"random"`` (each place equally likely), ``"center"``, or a frame's number.
    * ``short``: what a video is that ends before the last frame wanted: an ``"error"``, begun again (``"loop"``), or
      held at its last frame (``"pad"``).
    * ``max_pixels``: a video with larger frames is an error before it is decoded.
    * ``max_bytes``: so is one of which the result would be larger.

    A file that was cut short is a bad sample, wherever its frames are taken from; other damage is found in the frames
    that are decoded.
    """

    source: str
    to: str | None = None
    num_frames: int = 16
    stride: int = 1
    start: Literal["random", "center"] | int = "random"
    short: Literal["error", "loop", "pad"] = "error"
    max_pixels: int = 1 << 26
    max_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        for name in ("num_frames", "stride", "max_pixels", "max_bytes"):
            if getattr(self, name) < 1:
                raise SpecError(f"DecodeVideo: {name} is {getattr(self, name)}; it must be at least 1")
        if self.start not in ("random", "center") and (not isinstance(self.start, int) or self.start < 0):
            raise SpecError(f"DecodeVideo: start is {self.start!r}; expected random, center, or a frame from 0 on")
        if self.short not in ("error", "loop", "pad"):
            raise SpecError(f"DecodeVideo: short is {self.short!r}; expected error, loop or pad")

    @property
    def target(self) -> str:
        """The field that holds the frames."""
        return self.to or self.source

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.target,)

    @property
    def drops(self) -> tuple[str, ...]:
        return (self.source,) if self.target != self.source else ()

    @property
    def num_uniforms(self) -> int:
        """Where the frames begin."""
        return int(self.start == "random")

    @property
    def span(self) -> int:
        """Frames from the first one wanted to the last one."""
        return (self.num_frames - 1) * self.stride + 1

    def frames(self, total: int, uniforms: Sequence[float]) -> list[int] | None:
        """Return the numbers of the frames of a video that has ``total``; None if it is too short, an error."""
        room = max(0, total - self.span)
        if self.start == "random":
            first = whole_below(room + 1, uniforms[0])
        else:
            first = room // 2 if self.start == "center" else self.start
        wanted = range(first, first + self.span, self.stride)
        if wanted[-1] < total:
            return list(wanted)
        if self.short == "error" or not total:
            return None
        return [frame % total if self.short == "loop" else min(frame, total - 1) for frame in wanted]
