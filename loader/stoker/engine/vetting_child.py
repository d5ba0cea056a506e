"""The program of the process that tries samples before others make them: nothing of what it makes is kept."""

from __future__ import annotations

import os
import pickle
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.backends.options import Backend
from stoker.backends.program import Program
from stoker.backends.registry import compile_ops
from stoker.batch.builder import BatchBuilder
from stoker.batch.pool import BufferPool
from stoker.errors import DeviceLostError, SampleOrigin
from stoker.pipeline import Pipeline
from stoker.processes.channel import Channel, ChannelClosedError
from stoker.processes.ending import EXIT_DEVICE_LOST
from stoker.processes.payload import unpack
from stoker.sample import RawSample

READY = b"R"
TRIED = b"T"


@dataclass(frozen=True, slots=True)
class Trial:
    """A raw sample to be made as in ``epoch``, its fields as values of their own."""

    origin: SampleOrigin
    fields: dict[str, Any]
    index: int
    epoch: int
    uniforms: NDArray[np.float64]


def main(channel: Channel, inherited: Any) -> None:  # noqa: ARG001  # every child program has the same signature
    """Answer each trial, whatever became of it, until the other side hangs up."""
    try:
        _work(channel)
    except ChannelClosedError:
        return


def _work(channel: Channel) -> None:
    with suppress(OSError):  # a sample that takes all memory should end this process and no other
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    first = channel.receive(None)
    assert first is not None, "a wait without a deadline gives a message"
    backend: Backend = pickle.loads(first.body)
    (fd,) = first.fds
    pipeline: Pipeline = unpack(fd).load()
    os.close(fd)
    program, pool = compile_ops(pipeline.ops, backend), BufferPool()
    channel.send([READY])
    while (message := channel.receive(None)) is not None:
        try:
            _make(pickle.loads(message.body), program, pool, pipeline)
        except DeviceLostError:  # as much an end of the process as a signal
            os._exit(EXIT_DEVICE_LOST)
        except BaseException:  # noqa: BLE001  # told by who makes the sample in earnest
            pass
        channel.send([TRIED])


def _make(trial: Trial, program: Program, pool: BufferPool, pipeline: Pipeline) -> None:
    """What :class:`stoker.engine.decoders.DecodeLine` does with a row, up to its pixels."""
    raw, uniforms = RawSample(trial.origin, trial.fields), trial.uniforms
    sample = program.begin(raw, index=trial.index, seed=pipeline.seed, epoch=trial.epoch, uniforms=uniforms)
    for stop_index in range(len(program.stops)):
        if program.gatherer is not None:
            program.gatherer.make_fields([sample])
        program.go_on(sample, uniforms, stop_index)
    writes = BatchBuilder(1, pool, pipeline.collate or {}).prepare(0, sample)
    if program.gatherer is not None:
        program.gatherer.make(writes)
    else:
        for write in writes:
            write()
