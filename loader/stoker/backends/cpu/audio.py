"""Kernels for sound."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu.audio_file import check_whole
from stoker.backends.cpu.mel import MelBank
from stoker.backends.cpu.packages import need
from stoker.backends.program import Kernel
from stoker.backends.registry import implements
from stoker.errors import SampleError
from stoker.ops.decode_audio import DecodeAudio
from stoker.ops.mel_spectrogram import MelSpectrogram
from stoker.ops.resample_audio import ResampleAudio
from stoker.sample import Sample, Write

_UNKNOWN_FRAMES = 1 << 62
"""libsndfile says so many or more for a stream of which it does not know the length."""


@implements(DecodeAudio)
def decode_audio(op: DecodeAudio) -> Kernel:
    """Decode the frames that are wanted."""
    soundfile = need("soundfile")

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:
        value = sample.fields[op.source]
        if not isinstance(value, bytes | memoryview):
            found = type(value).__name__
            raise SampleError(f"field {op.source!r} holds {found}, expected the bytes of a sound file")
        if not len(value):
            raise SampleError("the sound file is empty")
        check_whole(value)
        try:
            with soundfile.SoundFile(io.BytesIO(value)) as file:
                wave, rate = _read(file, op, uniforms.tolist()), file.samplerate
        except soundfile.LibsndfileError as error:
            raise SampleError(f"no sound file, or a damaged one: {error.error_string}") from error
        if op.target != op.source:
            del sample.fields[op.source]
        sample.fields[op.target], sample.fields[op.rate_to] = wave, int(rate)

    return kernel


def _read(file: Any, op: DecodeAudio, uniforms: list[float]) -> NDArray[Any]:
    """The frames that are wanted: frames × channels, or frames."""
    total = file.frames
    if total >= _UNKNOWN_FRAMES:
        raise SampleError("the sound file does not say how long it is; write it again to a file, not to a stream")
    if op.num_frames is None and total > op.max_seconds * file.samplerate:
        raise SampleError(
            f"{total / file.samplerate:.0f} s of sound, more than max_seconds={op.max_seconds:g}; ask for a part by "
            "num_frames, or raise the limit"
        )
    first = op.first_frame(total, uniforms)
    wanted = total if op.num_frames is None else op.num_frames
    there = max(0, min(wanted, total - first))
    if there < wanted and op.short == "error":
        raise SampleError(f"{total} frames, of which {wanted} from {first} on were wanted; short='pad' fills them up")
    if first and there:
        file.seek(first)
    wave: NDArray[Any] = file.read(there, dtype=op.dtype, always_2d=True)
    if len(wave) != there:
        raise SampleError(f"the sound is cut short: {there} frames from {first} on were wanted, {len(wave)} came")
    if there < wanted:
        wave = np.pad(wave, ((0, wanted - there), (0, 0)))
    return _mono(wave) if op.mono else wave


def _mono(wave: NDArray[Any]) -> NDArray[Any]:
    if wave.shape[1] == 1:
        return wave[:, 0]
    mean: NDArray[Any] = wave.mean(axis=1, dtype=np.float32)
    return mean if wave.dtype == np.float32 else np.rint(mean).astype(wave.dtype)


@implements(ResampleAudio)
def resample_audio(op: ResampleAudio) -> Kernel:
    """Resample with soxr."""
    soxr = need("soxr")

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:  # noqa: ARG001  # draws nothing
        found, rate = wave(sample, op.field), sample.fields[op.rate_field]
        if not isinstance(rate, int | np.integer) or rate < 1:
            raise SampleError(f"field {op.rate_field!r} is {rate!r}, expected frames a second")
        if rate != op.rate and len(found):
            sample.fields[op.field] = soxr.resample(found, int(rate), op.rate, op.quality)
        sample.fields[op.rate_field] = op.rate

    return kernel


def wave(sample: Sample, field: str) -> NDArray[Any]:
    """A field as a wave. Raises KeyError without it, SampleError if it is none."""
    value = sample.fields[field]
    if isinstance(value, np.ndarray) and value.ndim in (1, 2) and value.dtype in (np.float32, np.int16):
        return value
    found = f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
    raise SampleError(f"field {field!r} holds {found}, expected a wave: float32 or int16, frames or frames × channels")


def mel_wave(sample: Sample, op: MelSpectrogram) -> NDArray[np.float32]:
    """The wave that a MelSpectrogram is made of. Raises as :func:`wave`, and SampleError if it has another rate."""
    found = wave(sample, op.field)
    rate = sample.fields.get(op.rate_field, op.rate)
    if rate != op.rate:
        raise SampleError(f"a wave of {rate} frames a second, expected {op.rate}: put ResampleAudio before it")
    if found.dtype != np.float32:
        found = found.astype(np.float32) / np.float32(32768)
    if len(found) <= op.n_fft // 2:
        raise SampleError(f"a wave of {len(found)} frames; windows of n_fft={op.n_fft} need {op.n_fft // 2 + 1}")
    return found


@implements(MelSpectrogram)
def mel_spectrogram(op: MelSpectrogram) -> Kernel:
    """Compute later, when it is written."""
    bank = MelBank(op)

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:  # noqa: ARG001  # draws nothing
        sample.fields[op.field] = _Mel(bank, mel_wave(sample, op))

    return kernel


class _Mel:
    """A spectrogram, made when it is written. A Deferred."""

    dtype = np.dtype(np.float32)

    def __init__(self, bank: MelBank, wave_: NDArray[np.float32]) -> None:
        self._bank = bank
        self._wave = wave_
        self.shape = bank.shape(wave_)

    def writer(self, out: NDArray[Any]) -> Write:
        """Prepare to fill ``out``."""
        return lambda: self._bank.fill(self._wave, out)

    def array(self) -> NDArray[Any]:
        """Return the numbers as a new array."""
        out = np.empty(self.shape, self.dtype)
        self.writer(out)()
        return out
