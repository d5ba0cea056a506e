"""MelSpectrogram against its definition in float64, known frequencies, and DALI's operators (as a back-end)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker import ops
from stoker.backends.cpu.mel import bands
from stoker.errors import SampleError, SpecError
from support import sounds
from support.ops import run

WAVE = sounds.wave(12_345)[:, 0]


def mel(op: ops.MelSpectrogram, wave: NDArray[Any], rate: int | None = None) -> NDArray[Any]:
    fields = {"audio": wave} if rate is None else {"audio": wave, "rate": rate}
    value = run(op, fields).fields["audio"]
    out = np.zeros(value.shape, value.dtype)
    value.writer(out)()
    return out


@pytest.mark.parametrize("scale", ["slaney", "htk"])
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("power", [1, 2])
def test_the_numbers_are_those_of_the_definition(scale: Any, norm: bool, power: Any) -> None:
    op = ops.MelSpectrogram("audio", 16000, n_fft=512, window_length=400, scale=scale, norm=norm, power=power)
    frame = np.arange(512)
    window = np.where((frame >= 56) & (frame < 456), np.sin(np.pi * (frame - 56) / 400) ** 2, 0)
    transform = np.exp(-2j * np.pi * np.outer(np.arange(257), frame) / 512)
    padded = np.pad(WAVE.astype(np.float64), 256, mode="reflect")
    windows = np.stack([padded[at : at + 512] for at in range(0, len(padded) - 511, 160)])
    expected = bands(op).astype(np.float64) @ np.abs(transform @ (windows * window).T) ** power
    found = mel(op, WAVE)
    assert found.shape == expected.shape == (80, 1 + 12_345 // 160)
    assert np.abs(found - expected).max() <= 2e-6 * expected.max()


@pytest.mark.parametrize("scale", ["slaney", "htk"])
def test_a_tone_is_loudest_in_the_band_whose_middle_is_nearest(scale: Any) -> None:
    op = ops.MelSpectrogram("audio", 16000, n_fft=2048, n_mels=40, scale=scale, norm=False)
    for frequency in (300.0, 1000.0, 2500.0, 6000.0):
        tone = np.sin(2 * np.pi * frequency * np.arange(16000) / 16000).astype(np.float32)
        loudest = int(mel(op, tone).mean(axis=1).argmax())
        middles = np.array(op.corners()[1:-1])
        assert abs(loudest - np.abs(middles - frequency).argmin()) <= 1


def test_the_scales_are_the_published_ones() -> None:
    """Slaney: linear to 1000 Hz, 15 mels, then 27 mels for a factor of 6.4. HTK: 2595 log10(1 + f / 700)."""
    slaney = ops.MelSpectrogram("audio", 16000, n_mels=41, f_max=6400, n_fft=2048).corners()
    np.testing.assert_allclose(slaney[:16], np.arange(16) * 1000 / 15, rtol=1e-12)
    assert slaney[-1] == pytest.approx(6400)
    htk = ops.MelSpectrogram("audio", 16000, n_mels=9, scale="htk", n_fft=2048).corners()
    mels = 2595 * np.log10(1 + np.array(htk) / 700)
    np.testing.assert_allclose(np.diff(mels), mels[-1] / 10, rtol=1e-9)


def test_a_triangle_has_the_area_one_or_the_height_one() -> None:
    fine: dict[str, Any] = {"n_fft": 16384, "n_mels": 20}
    step = 16000 / 16384
    area = bands(ops.MelSpectrogram("audio", 16000, **fine)).sum(axis=1) * step
    np.testing.assert_allclose(area, 1, atol=0.01)
    height = bands(ops.MelSpectrogram("audio", 16000, norm=False, **fine)).max(axis=1)
    np.testing.assert_allclose(height, 1, atol=0.02)


def test_decibels_are_cut_below_the_loudest() -> None:
    op = ops.MelSpectrogram("audio", 16000, decibels=True, top_db=50.0)
    plain = mel(ops.MelSpectrogram("audio", 16000), WAVE)
    found = mel(op, WAVE)
    expected = np.maximum(10 * np.log10(np.maximum(plain, 1e-10)), 10 * np.log10(plain.max()) - 50)
    np.testing.assert_allclose(found, expected, atol=2e-3)
    silence = mel(op, np.zeros(1000, np.float32))
    np.testing.assert_allclose(silence, -100, atol=1e-3)


def test_channels_stand_first_and_whole_numbers_are_scaled() -> None:
    stereo = sounds.wave(5000, 2)
    op = ops.MelSpectrogram("audio", 16000)
    found = mel(op, stereo)
    assert found.shape == (2, 80, 32)
    for channel in range(2):
        np.testing.assert_allclose(found[channel], mel(op, np.ascontiguousarray(stereo[:, channel])), rtol=1e-4)
    whole = np.rint(WAVE * 32768 * 0.5).astype(np.int16)
    np.testing.assert_allclose(mel(op, whole), mel(op, (whole / np.float32(32768))), rtol=1e-5)


def test_a_long_wave_is_made_in_parts_that_fit_together() -> None:
    long = sounds.wave(160 * 2500)[:, 0]
    found = mel(ops.MelSpectrogram("audio", 16000), long)
    part = mel(ops.MelSpectrogram("audio", 16000), long[160 * 1000 : 160 * 1100])
    np.testing.assert_allclose(found[:, 1010:1090], part[:, 10:90], rtol=1e-4, atol=1e-9)


def test_another_rate_is_a_bad_sample() -> None:
    op = ops.MelSpectrogram("audio", 16000)
    assert mel(op, WAVE, 16000).shape == (80, 78)
    with pytest.raises(SampleError, match="44100 frames a second, expected 16000: put ResampleAudio"):
        mel(op, WAVE, 44100)
    with pytest.raises(SampleError, match="a wave of 200 frames"):
        mel(op, WAVE[:200])


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 0},
        {"n_fft": 0},
        {"hop_length": 0},
        {"n_mels": 0},
        {"window_length": 500},
        {"f_max": 9000.0},
        {"power": 3},
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, Any]) -> None:
    name = next(iter(wrong))
    with pytest.raises(SpecError, match="bands" if name == "f_max" else name):
        ops.MelSpectrogram(**{"field": "audio", "rate": 16000, **wrong})
