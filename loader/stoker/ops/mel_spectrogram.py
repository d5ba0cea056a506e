"""A wave as the power in mel-spaced bands over time."""

from __future__ import annotations

import math
from typing import Literal

from stoker.errors import SpecError
from stoker.ops.op import Op
from stoker.spec import spec

Scale = Literal["slaney", "htk"]


@spec
class MelSpectrogram(Op):
    """The mel spectrogram of a float32 wave: ``n_mels`` × windows, or channels × ``n_mels`` × windows, as float32.

    Windows of ``n_fft`` frames, every ``hop_length``, the first centred on frame 0 (the wave mirrored at its ends),
    each weighted by a periodic Hann window of ``window_length`` (``n_fft`` unless given), padded to ``n_fft`` on both
    sides; the magnitude of its Fourier transform to the ``power``, in ``n_mels`` triangular bands from ``f_min`` to
    ``f_max`` Hz (half of the rate unless given). So defined in ``librosa.feature.melspectrogram``, and with
    ``scale="htk", norm=False`` in ``torchaudio.transforms.MelSpectrogram``.

    * ``rate``: the wave's frames a second. A sample whose ``rate_field`` says otherwise is bad.
    * ``scale``: ``"slaney"`` (Auditory Toolbox) or ``"htk"`` (O'Shaughnessy 1987).
    * ``norm``: whether each band's triangle has the area 1 (Slaney's normalisation), instead of the height 1.
    * ``decibels``: 10·log10 of the power (20·log10 of the magnitude), nothing below 1e-10, and cut at ``top_db`` below
      the sample's loudest value.
    """

    field: str
    rate: int
    n_fft: int = 400
    hop_length: int = 160
    window_length: int | None = None
    n_mels: int = 80
    f_min: float = 0.0
    f_max: float | None = None
    power: Literal[1, 2] = 2
    scale: Scale = "slaney"
    norm: bool = True
    decibels: bool = False
    top_db: float = 80.0
    rate_field: str = "rate"

    def __post_init__(self) -> None:
        for name in ("rate", "n_fft", "hop_length", "n_mels", "taps"):
            if getattr(self, name) < 1:
                raise SpecError(f"MelSpectrogram: {name} is {getattr(self, name)}; it must be at least 1")
        if self.taps > self.n_fft:
            raise SpecError(f"MelSpectrogram: window_length is {self.taps}, longer than n_fft={self.n_fft}")
        if not 0 <= self.f_min < self.highest <= self.rate / 2:
            raise SpecError(
                f"MelSpectrogram: bands from {self.f_min:g} to {self.highest:g} Hz; expected them to lie between 0 and "
                f"half of the rate, {self.rate / 2:g}"
            )
        if self.power not in (1, 2):
            raise SpecError(f"MelSpectrogram: power is {self.power}; expected 1 (magnitude) or 2 (power)")

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.field,)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.field,)

    @property
    def taps(self) -> int:
        """Frames under the window."""
        return self.n_fft if self.window_length is None else self.window_length

    @property
    def highest(self) -> float:
        """The upper end of the highest band, in Hz."""
        return self.rate / 2 if self.f_max is None else self.f_max

    def num_windows(self, num_frames: int) -> int:
        """How many windows a wave of so many frames has."""
        return 1 + num_frames // self.hop_length

    def corners(self) -> list[float]:
        """The corners of the bands' triangles in Hz, ``n_mels`` + 2: band b rises from b to b+1 and ends at b+2."""
        low, high = _mels(self.f_min, self.scale), _mels(self.highest, self.scale)
        step = (high - low) / (self.n_mels + 1)
        return [_hertz(low + step * corner, self.scale) for corner in range(self.n_mels + 2)]


_LINEAR_HZ = 200 / 3
_BREAK_HZ = 1000.0
_BREAK_MELS = _BREAK_HZ / _LINEAR_HZ
_LOG_STEP = math.log(6.4) / 27


def _mels(hertz: float, scale: Scale) -> float:
    if scale == "htk":
        return 2595 * math.log10(1 + hertz / 700)
    if hertz < _BREAK_HZ:
        return hertz / _LINEAR_HZ
    return _BREAK_MELS + math.log(hertz / _BREAK_HZ) / _LOG_STEP


def _hertz(mels: float, scale: Scale) -> float:
    if scale == "htk":
        return 700 * (10 ** (mels / 2595) - 1)
    if mels < _BREAK_MELS:
        return mels * _LINEAR_HZ
    return _BREAK_HZ * math.exp(_LOG_STEP * (mels - _BREAK_MELS))
