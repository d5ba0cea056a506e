"""Short sounds for tests."""

from __future__ import annotations

import io

import numpy as np
import soundfile
from numpy.typing import NDArray


def wave(num_frames: int = 8000, channels: int = 1, rate: int = 16000, seed: int = 0) -> NDArray[np.float32]:
    """A few tones of the seed's pitches with a little noise, from -1 to 1: frames × channels."""
    rng = np.random.default_rng(seed)
    time = np.arange(num_frames)[:, None] / rate
    tones = sum(np.sin(2 * np.pi * rng.uniform(100, rate / 8, channels) * time) for _ in range(3))
    return np.asarray(0.25 * tones + 0.01 * rng.standard_normal((num_frames, channels)), np.float32)


def encode(
    samples: NDArray[np.float32], rate: int = 16000, file_format: str = "WAV", subtype: str | None = None
) -> bytes:
    """A sound file."""
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=file_format, subtype=subtype)
    return out.getvalue()
