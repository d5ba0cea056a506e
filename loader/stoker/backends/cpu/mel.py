"""The numbers of a mel spectrogram, after the definitions that :class:`stoker.ops.MelSpectrogram` names."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stoker.ops.mel_spectrogram import MelSpectrogram

LEAST = 1e-10
"""Power, or magnitude, of which nothing less is told in decibels."""

_WINDOWS_AT_ONCE = 1024
"""So that a long wave needs no more memory than a short one."""


class MelBank:
    """Window and bands of one op; safe for many threads."""

    def __init__(self, op: MelSpectrogram) -> None:
        self._op = op
        self._window = hann(op)
        self._bands = bands(op)

    def shape(self, wave: NDArray[np.float32]) -> tuple[int, ...]:
        """The shape of the result: channels, if the wave has that dimension, × bands × windows."""
        return (*wave.shape[1:], self._op.n_mels, self._op.num_windows(len(wave)))

    def fill(self, wave: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Compute the spectrogram of a wave, frames or frames × channels."""
        for channel, place in [(wave, out)] if wave.ndim == 1 else zip(wave.T, out, strict=True):
            self._fill(channel, place)
        if self._op.decibels:
            self._to_decibels(out)

    def _fill(self, wave: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        op = self._op
        padded = np.pad(wave, op.n_fft // 2, mode="reflect")
        windows = np.lib.stride_tricks.sliding_window_view(padded, op.n_fft)[:: op.hop_length]
        for first in range(0, out.shape[1], _WINDOWS_AT_ONCE):
            some = windows[first : first + _WINDOWS_AT_ONCE]
            magnitude = np.abs(np.fft.rfft(some * self._window, axis=1)).astype(np.float32, copy=False)
            out[:, first : first + len(some)] = self._bands @ (magnitude if op.power == 1 else magnitude**2).T

    def _to_decibels(self, out: NDArray[np.float32]) -> None:
        np.maximum(out, LEAST, out=out)
        np.log10(out, out=out)
        out *= 10 if self._op.power == 2 else 20
        np.maximum(out, out.max() - self._op.top_db, out=out)


def hann(op: MelSpectrogram) -> NDArray[np.float32]:
    """The periodic Hann window, zeros on both sides of it up to ``n_fft``."""
    window = np.zeros(op.n_fft, np.float32)
    first = (op.n_fft - op.taps) // 2
    window[first : first + op.taps] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(op.taps) / op.taps)
    return window


def bands(op: MelSpectrogram) -> NDArray[np.float32]:
    """What each frequency gives to each band: bands × (n_fft / 2 + 1)."""
    corners = np.array(op.corners())
    frequencies = np.arange(op.n_fft // 2 + 1) * (op.rate / op.n_fft)
    left, middle, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    triangles = np.minimum((frequencies - left) / (middle - left), (right - frequencies) / (right - middle))
    heights = 2 / (right - left) if op.norm else np.ones_like(middle)
    weights: NDArray[np.float32] = (np.maximum(triangles, 0) * heights).astype(np.float32)
    return weights
