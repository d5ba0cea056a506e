"""A wave at another rate."""

from __future__ import annotations

from typing import Literal

from stoker.errors import SpecError
from stoker.ops.op import Op
from stoker.spec import spec


@spec
class ResampleAudio(Op):
    """Resample a wave (frames, or frames × channels) to ``rate`` frames a second, from the one in ``rate_field``.

    The new rate takes its place there. ``quality`` is soxr's: "HQ" is for 16 bits, "VHQ" for 20, "QQ" is fast and poor.
    The result has the frames of the old one times the ratio of the rates, rounded; float32 stays float32, int16 int16.
    """

    field: str
    rate: int
    rate_field: str = "rate"
    quality: Literal["QQ", "LQ", "MQ", "HQ", "VHQ"] = "HQ"

    def __post_init__(self) -> None:
        if self.rate < 1:
            raise SpecError(f"ResampleAudio: rate is {self.rate}; expected frames a second, at least 1")

    @property
    def reads(self) -> tuple[str, ...]:
        return self.field, self.rate_field

    @property
    def writes(self) -> tuple[str, ...]:
        return self.field, self.rate_field
