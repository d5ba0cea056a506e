"""One op, or a chain, run on one sample."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.backends.registry import compile_ops
from stoker.errors import SampleOrigin
from stoker.ops.op import Op
from stoker.sample import Deferred, RawSample, Sample

BACKEND: ContextVar[str] = ContextVar("BACKEND", default="cpu")
"""The back-end that carries out what :func:`run` is given; set by the fixture ``backend``."""

ORIGIN = SampleOrigin("mem://shard.tar", 3, "n01/0003")


def run(ops: Op | Sequence[Op], fields: dict[str, Any], uniforms: Sequence[float] | None = None) -> Sample:
    """Run ops on a sample with these fields; without ``uniforms`` each is 0.5."""
    program = compile_ops([ops] if isinstance(ops, Op) else ops, BACKEND.get())
    draws = np.full(program.num_uniforms, 0.5) if uniforms is None else np.array(uniforms, np.float64)
    return program.run(RawSample(ORIGIN, fields), index=7, seed=1, epoch=0, uniforms=draws)


def image(ops: Op | Sequence[Op], picture: Any, uniforms: Sequence[float] | None = None) -> NDArray[Any]:
    """Run ops on the field ``image`` and return what becomes of it, as it would stand in a batch."""
    value = run(ops, {"image": picture}, uniforms).fields["image"]
    if not isinstance(value, Deferred):
        return np.asarray(value)
    out = np.zeros(value.shape, value.dtype)
    value.writer(out)()
    return out


def decoded(op: Op, file: bytes) -> NDArray[Any]:
    """Decode a file in the field ``image``."""
    return image(op, file)


def resized_differences(out: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.int64]:
    """How much pixels that were resized differ from Pillow's; DALI's without a sixteenth (at least two) at each border.

    There DALI repeats the picture's last pixels, where Pillow leaves the filter's part beyond them out.
    """
    differences: NDArray[np.int64] = np.abs(out.astype(np.int64) - expected)
    if BACKEND.get() == "cpu":
        return differences
    assert differences.max() <= 64
    border = max(2, min(out.shape[:2]) // 16)
    return differences[border:-border, border:-border]
