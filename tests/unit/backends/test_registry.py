"""Programs: what is compiled, and what errors say."""

from __future__ import annotations

import numpy as np
import pytest

from stoker import ops
from stoker.backends.program import Program
from stoker.backends.registry import compile_ops
from stoker.errors import SampleError, SpecError
from stoker.ops.op import Op
from stoker.sample import RawSample, Sample
from stoker.spec import spec
from support import pictures
from support.ops import ORIGIN


@spec
class Unknown(Op):
    """An op that no back-end has."""


def test_unknown_back_ends_and_ops_are_refused() -> None:
    with pytest.raises(SpecError, match="known: auto, cpu, dali"):
        compile_ops([], "tpu")
    with pytest.raises(SpecError, match="Unknown: the back-end 'cpu' has no such op"):
        compile_ops([Unknown()])


def test_every_op_that_is_named_has_a_kernel() -> None:
    arguments = {"RandomResizedCrop": (9,), "Resize": (9,), "CenterCrop": (9,), "Pad": (1,), "GaussianBlur": (3,)}
    more = {"Normalize": ((0.5,), (0.5,)), "ToLayout": ("NHWC",)}
    for name in ops.__all__:
        op_type = getattr(ops, name, None)
        if op_type is not None and "field" in op_type.__dataclass_fields__ and name.startswith(_PICTURE_OPS):
            compile_ops([op_type("image", *(arguments | more).get(name, ()))])


_PICTURE_OPS = ("Random", "Rand", "Resize", "Center", "Pad", "Gaussian", "Normalize", "ToLayout", "Color", "Trivial")


def test_each_op_gets_its_own_uniforms() -> None:
    seen: list[list[float]] = []

    def kernel(sample: Sample, uniforms: np.ndarray) -> None:
        seen.append(uniforms.tolist())

    chain = [ops.RandomHorizontalFlip("image"), ops.CenterCrop("image", 3), ops.TrivialAugment("image")]
    program = Program([(op, kernel) for op in chain])
    assert program.num_uniforms == 4
    program.run(RawSample(ORIGIN, {}), index=0, seed=0, epoch=0, uniforms=np.array([0.1, 0.2, 0.3, 0.4]))
    assert seen == [[0.1], [], [0.2, 0.3, 0.4]]


def test_errors_name_op_origin_and_fields() -> None:
    program = compile_ops([ops.DecodeImage("jpg", to="image"), ops.CenterCrop("picture", 3)])
    with pytest.raises(SampleError) as caught:
        program.run(RawSample(ORIGIN, {"jpg": pictures.jpeg()}), index=0, seed=0, epoch=0, uniforms=np.empty(0))
    assert caught.value.origin == ORIGIN
    expected = (
        "mem://shard.tar row 3 (key 'n01/0003'): CenterCrop('picture'): no field 'picture'; this sample has: image"
    )
    assert str(caught.value) == expected


def test_the_raw_sample_is_left_alone() -> None:
    raw = RawSample(ORIGIN, {"jpg": pictures.jpeg(), "cls": b"1"})
    compile_ops([ops.DecodeImage("jpg", to="image")]).run(raw, index=0, seed=0, epoch=0, uniforms=np.empty(0))
    assert set(raw.fields) == {"jpg", "cls"}


def test_a_kernels_own_key_error_is_not_taken_for_a_missing_field() -> None:
    def kernel(sample: Sample, uniforms: np.ndarray) -> None:
        raise KeyError("other")

    program = Program([(ops.CenterCrop("image", 3), kernel)])
    with pytest.raises(KeyError, match="other"):
        program.run(RawSample(ORIGIN, {}), index=0, seed=0, epoch=0, uniforms=np.empty(0))
