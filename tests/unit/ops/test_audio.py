"""DecodeAudio and ResampleAudio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr

import stoker
from stoker import ops
from stoker.errors import SampleError, SpecError
from support import sounds
from support.loading import batches_of, tar_of
from support.ops import run

STEREO = sounds.wave(9000, 2)


def decoded(op: ops.DecodeAudio, file: Any, uniforms: list[float] | None = None) -> dict[str, Any]:
    return run(op, {"wav": file}, uniforms).fields


@pytest.mark.parametrize(
    "file_format, subtype, tolerance",
    [
        ("WAV", "FLOAT", 0),
        ("WAV", "PCM_16", 2**-15),
        ("FLAC", "PCM_16", 2**-15),
        ("AIFF", "PCM_24", 2**-23),
        ("OGG", "VORBIS", 0.1),
        ("MP3", None, 0.1),
    ],
)
def test_formats_are_told_apart_by_content(file_format: str, subtype: str | None, tolerance: float) -> None:
    found = decoded(ops.DecodeAudio("wav", to="audio"), sounds.encode(STEREO, 16000, file_format, subtype))
    assert set(found) == {"audio", "rate"}
    assert found["rate"] == 16000
    assert found["audio"].shape == STEREO.shape
    assert found["audio"].dtype == np.float32
    difference = np.abs(found["audio"] - STEREO)
    assert (difference.max() if tolerance < 0.1 else np.sqrt((difference**2).mean())) <= tolerance


def test_opus_is_decoded_at_the_rate_it_has() -> None:
    wave = sounds.wave(48000, 1, 48000)
    found = decoded(ops.DecodeAudio("wav"), sounds.encode(wave, 48000, "OGG", "OPUS"))
    assert found["rate"] == 48000
    assert abs(len(found["wav"]) - 48000) <= 960


@pytest.mark.parametrize("start, first", [("center", 4000), (7, 7), (0, 0)])
def test_a_part_is_that_part_of_the_whole(start: Any, first: int) -> None:
    file = sounds.encode(STEREO, subtype="FLOAT")
    found = decoded(ops.DecodeAudio("wav", num_frames=1000, start=start), file)
    np.testing.assert_array_equal(found["wav"], STEREO[first : first + 1000])


@pytest.mark.parametrize("file_format", ["WAV", "FLAC", "OGG", "MP3"])
def test_random_parts_lie_anywhere_and_are_parts_of_the_whole(file_format: str) -> None:
    file = sounds.encode(STEREO, file_format=file_format)
    whole = decoded(ops.DecodeAudio("wav"), file)["wav"]
    op = ops.DecodeAudio("wav", num_frames=500)
    firsts = set()
    for uniform in (0.0, 0.3, 0.77, 1 - 2**-53):
        first = op.first_frame(len(whole), [uniform])
        firsts.add(first)
        part = decoded(op, file, [uniform])["wav"]
        np.testing.assert_allclose(part, whole[first : first + 500], atol=1e-4 if file_format != "MP3" else 0.05)
    assert firsts == {0, 2550, 6545, 8500}


def test_silence_fills_up_what_is_short() -> None:
    file = sounds.encode(STEREO[:30], subtype="FLOAT")
    with pytest.raises(SampleError, match="30 frames, of which 40 from 0 on were wanted"):
        decoded(ops.DecodeAudio("wav", num_frames=40), file)
    found = decoded(ops.DecodeAudio("wav", num_frames=40, short="pad"), file)["wav"]
    np.testing.assert_array_equal(found, np.pad(STEREO[:30], ((0, 10), (0, 0))))
    beyond = decoded(ops.DecodeAudio("wav", num_frames=40, start=99, short="pad"), file)["wav"]
    assert not beyond.any()


def test_mono_is_the_mean_of_the_channels() -> None:
    file = sounds.encode(STEREO, subtype="FLOAT")
    found = decoded(ops.DecodeAudio("wav", mono=True), file)["wav"]
    np.testing.assert_allclose(found, STEREO.mean(axis=1), atol=1e-7)
    whole = decoded(ops.DecodeAudio("wav", dtype="int16"), sounds.encode(STEREO))["wav"]
    assert whole.dtype == np.int16
    half = decoded(ops.DecodeAudio("wav", dtype="int16", mono=True), sounds.encode(STEREO))["wav"]
    assert np.abs(half - whole.astype(int).mean(axis=1)).max() <= 0.5
    assert decoded(ops.DecodeAudio("wav", mono=True), sounds.encode(STEREO[:, :1]))["wav"].ndim == 1


WAV = sounds.encode(STEREO)
FLAC = sounds.encode(STEREO, file_format="FLAC")


@pytest.mark.parametrize(
    "file, reason",
    [
        (b"", "is empty"),
        (b"no sound at all, but a text", "no sound file"),
        (FLAC[: len(FLAC) // 2], "cut short|damaged"),
        (FLAC[:2000] + bytes(1500) + FLAC[3500:], "cut short|damaged"),
        *((sounds.encode(STEREO, file_format=kind)[:-900], "cut short") for kind in ("WAV", "AIFF", "OGG", "MP3")),
        ("text", "expected the bytes"),
    ],
    ids=["empty", "text", "half", "zeros", "wav", "aiff", "ogg", "mp3", "str"],
)
def test_what_cannot_be_decoded_is_a_bad_sample(file: Any, reason: str) -> None:
    with pytest.raises(SampleError, match=reason):
        decoded(ops.DecodeAudio("wav"), file)


def test_a_long_file_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(SampleError, match=r"max_seconds=0\.5"):
        decoded(ops.DecodeAudio("wav", max_seconds=0.5), WAV)
    assert decoded(ops.DecodeAudio("wav", max_seconds=0.5, num_frames=10), WAV)["wav"].shape == (10, 2)


@pytest.mark.parametrize("wrong", [{"num_frames": 0}, {"start": -1}, {"max_seconds": 0}, {"rate_to": "wav"}])
def test_wrong_arguments_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=next(iter(wrong))):
        ops.DecodeAudio("wav", **wrong)


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44100])
@pytest.mark.parametrize("channels", [1, 2])
def test_resampling_is_soxrs(rate: int, channels: int) -> None:
    wave = sounds.wave(5001, channels)
    sample = run(ops.ResampleAudio("audio", rate), {"audio": wave, "rate": 16000})
    assert sample.fields["rate"] == rate
    np.testing.assert_array_equal(sample.fields["audio"], soxr.resample(wave, 16000, rate, "HQ"))
    assert len(sample.fields["audio"]) == int(5001 * rate / 16000 + 0.5)


def test_a_tone_stays_a_tone() -> None:
    time = np.arange(44100) / 44100
    tone = np.sin(2 * np.pi * 440 * time).astype(np.float32)
    found = run(ops.ResampleAudio("audio", 16000), {"audio": tone, "rate": 44100}).fields["audio"]
    expected = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
    assert np.abs(found - expected)[100:-100].max() < 1e-4


@pytest.mark.parametrize(
    "fields, reason",
    [
        ({"audio": np.zeros(5, np.float32), "rate": 0}, "expected frames a second"),
        ({"audio": np.zeros(5, np.float32), "rate": "fast"}, "expected frames a second"),
        ({"audio": np.zeros((5, 2, 2), np.float32), "rate": 8000}, "expected a wave"),
        ({"audio": np.zeros(5), "rate": 8000}, "expected a wave"),
        ({"audio": "sound", "rate": 8000}, "holds str, expected a wave"),
        ({"audio": np.zeros(5, np.float32)}, "no field 'rate'"),
    ],
)
def test_what_is_no_wave_is_a_bad_sample(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(SampleError, match=reason):
        run(ops.ResampleAudio("audio", 16000), fields)
    with pytest.raises(SpecError, match="rate"):
        ops.ResampleAudio("audio", 0)


def test_a_pipeline_of_sounds(tmp_path: Path) -> None:
    """Files of three rates and kinds, one of them broken, in batches, by every way a loader works."""
    made = [
        sounds.encode(
            sounds.wave(4000 + row, 1 + row % 2, (8000, 16000, 44100)[row % 3]), (8000, 16000, 44100)[row % 3]
        )
        for row in range(9)
    ]
    made[4] = made[4][:30]
    content = {f"{row}": {"wav": file} for row, file in enumerate(made)}
    steps = [
        ops.DecodeAudio("wav", to="audio", num_frames=3000, mono=True),
        ops.ResampleAudio("audio", 16000),
        ops.MelSpectrogram("audio", 16000, n_mels=40),
    ]
    settings: dict[str, Any] = {"batch_size": 3, "on_error": "replace", "collate": {"audio": "list"}}
    pipeline = stoker.Pipeline(stoker.tar(tar_of(tmp_path / "a.tar", content)), steps, **settings)
    batches = batches_of(pipeline)
    assert sum(int(batch["__mask__"].sum()) for batch in batches) == 8
    assert all(each.shape[0] == 40 for batch in batches for each in batch["audio"])
    again = batches_of(stoker.Pipeline.from_json(pipeline.to_json()), num_workers=1)
    for one, other in zip(batches, again, strict=True):
        assert one["__key__"] == other["__key__"]
        for left, right in zip(one["audio"], other["audio"], strict=True):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF])
def test_a_file_written_to_a_pipe_is_read_to_its_end(size: int) -> None:
    """Its header does not know its length."""
    piped = WAV[:4] + size.to_bytes(4, "little") + WAV[8:]
    assert len(decoded(ops.DecodeAudio("wav"), piped)["wav"]) == len(STEREO)
