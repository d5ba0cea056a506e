"""The mel spectrogram beside DALI's operators on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stoker import ops
from stoker.backends.cpu.mel import MelBank, hann
from support import sounds


@pytest.mark.parametrize("scale", ["slaney", "htk"])
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("power", [1, 2])
def test_the_numbers_are_dalis(scale: Any, norm: bool, power: Any) -> None:
    dali, fn = pytest.importorskip("nvidia.dali"), pytest.importorskip("nvidia.dali.fn")
    wave = sounds.wave(12_345)[:, 0]
    op = ops.MelSpectrogram("audio", 16000, n_fft=512, f_min=20.0, f_max=7600.0, scale=scale, norm=norm, power=power)
    pipe = dali.Pipeline(batch_size=1, num_threads=1, device_id=None)
    with pipe:
        spectrum = fn.spectrogram(
            fn.external_source(name="wave", ndim=1),
            nfft=512,
            window_length=512,
            window_step=160,
            window_fn=hann(op).tolist(),
            power=power,
        )
        pipe.set_outputs(
            fn.mel_filter_bank(
                spectrum,
                sample_rate=16000.0,
                nfilter=80,
                freq_low=20.0,
                freq_high=7600.0,
                mel_formula=scale,
                normalize=norm,
            )
        )
    pipe.build()
    pipe.feed_input("wave", [wave])
    expected = pipe.run()[0].as_array()[0]
    bank = MelBank(op)
    found = np.empty(bank.shape(wave), np.float32)
    bank.fill(wave, found)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-5 * expected.max()
