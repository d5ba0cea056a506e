"""Makes pictures by a program, many of them together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.backends.program import Program
from stoker.errors import SampleError, SampleOrigin
from stoker.sample import Deferred, RawSample, Sample, Write
from stoker.selfcheck.chains import FIELD
from stoker.selfcheck.compare import Outcome

SEED = 0


def make_all(program: Program, files: Mapping[str, bytes]) -> dict[str, Outcome]:
    """Make each picture, with the numbers that the sample of its place draws. Other errors than a sample's are raised.

    What a program does for the rows of a batch (``engine/decoders.py``), without threads.
    """
    uniforms = program.uniforms(SEED, 0, np.arange(len(files)))
    made: dict[str, Outcome] = {}
    places: list[tuple[str, Write]] = []
    for index, (name, content) in enumerate(files.items()):
        raw = RawSample(SampleOrigin("selfcheck", index, name), {FIELD: content})
        try:
            sample = program.run(raw, index=index, seed=SEED, epoch=0, uniforms=uniforms[index])
            made[name], writes = _placed(sample)
            places += [(name, write) for write in writes]
        except SampleError as verdict:
            made[name] = verdict
    writes = [write for _, write in places]
    for (name, _), error in zip(places, _verdicts(program, writes), strict=True):
        if error is not None:
            made[name] = error
    return made


def _placed(sample: Sample) -> tuple[NDArray[Any], list[Write]]:
    """The place of a sample's pixels, and what fills it."""
    value = sample.fields["image"]
    if not isinstance(value, Deferred):
        return np.asarray(value), []
    out = np.empty(value.shape, value.dtype)
    return out, [value.writer(out)]


def _verdicts(program: Program, writes: list[Write]) -> list[SampleError | None]:
    if program.gatherer is not None:
        return list(program.gatherer.make(writes))
    return [_verdict(write) for write in writes]


def _verdict(write: Write) -> SampleError | None:
    try:
        write()
    except SampleError as error:
        return error
    return None
