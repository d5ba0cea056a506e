"""Bytes of a sound file become samples of a wave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from stoker.errors import SpecError
from stoker.ops.chance import whole_below
from stoker.ops.op import Op
from stoker.spec import spec


@spec
class DecodeAudio(Op):
    """Decode WAV, FLAC, Ogg (Vorbis, Opus), MP3, AIFF and what else libsndfile knows, told apart by content.

    The result is frames × channels, as in soundfile and DALI; with ``mono`` the mean of the channels, of one dimension.
    A frame is one number of each channel. The rate, in frames a second, becomes the field ``rate_to``.

    * ``num_frames``: how many frames are decoded, None for all. The file is decoded from the frame on at which they
      begin: ``start`` is ``"random"`` (each place equally likely), ``"center"``, or a frame's number.
    * ``short``: what a file with fewer frames is: an ``"error"``, or filled up with silence at its end (``"pad"``).
    * ``dtype``: ``"float32"`` from -1 to 1, or ``"int16"``.
    * ``max_seconds``: a longer file is an error, unless a part of it is asked for.

    WAV, AIFF and Ogg files that are cut short are bad samples; of others, if the frames asked for are not all there.
    """

    source: str
    to: str | None = None
    rate_to: str = "rate"
    num_frames: int | None = None
    start: Literal["random", "center"] | int = "random"
    short: Literal["error", "pad"] = "error"
    mono: bool = False
    dtype: Literal["float32", "int16"] = "float32"
    max_seconds: float = 3600.0

    def __post_init__(self) -> None:
        if self.num_frames is not None and self.num_frames < 1:
            raise SpecError(f"DecodeAudio: num_frames is {self.num_frames}; it must be at least 1, or None for all")
        if isinstance(self.start, int) and self.start < 0:
            raise SpecError(f"DecodeAudio: start is {self.start}; expected random, center, or a frame from 0 on")
        if self.max_seconds <= 0:
            raise SpecError(f"DecodeAudio: max_seconds is {self.max_seconds}; it must be above 0")
        if self.rate_to in (self.source, self.target):
            raise SpecError(f"DecodeAudio: rate_to is {self.rate_to!r}, the name of the sound itself; take another")

    @property
    def target(self) -> str:
        """The field that holds the wave."""
        return self.to or self.source

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[str, ...]:
        return self.target, self.rate_to

    @property
    def drops(self) -> tuple[str, ...]:
        return (self.source,) if self.target != self.source else ()

    @property
    def num_uniforms(self) -> int:
        """Where the part begins."""
        return int(self.num_frames is not None and self.start == "random")

    def first_frame(self, total: int, uniforms: Sequence[float]) -> int:
        """Return the frame at which the part of a file of ``total`` frames begins; 0 if all of it is wanted."""
        if self.num_frames is None:
            return 0
        room = max(0, total - self.num_frames)
        if self.start == "random":
            return whole_below(room + 1, uniforms[0])
        return room // 2 if self.start == "center" else self.start
