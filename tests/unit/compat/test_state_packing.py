"""States of generators and samplers as JSON values."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from stoker.compat.packing import pack, unpack
from stoker.compat.sources import NumpyBits, NumpyRandomState, PythonGenerator, Source, TorchGenerator


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2**100,
        0.5,
        "text",
        b"\x00\xff",
        [1, [2]],
        (1, (2, "x")),
        {"a": {"b": ()}},
        {1: 2, (3,): [4]},
        {"!": 5},
    ],
    ids=repr,
)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    back = unpack(json.loads(json.dumps(pack(value))))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32, torch.bfloat16, torch.bool], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)], ids=str)
def test_a_tensor_comes_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(6)[: torch.Size(shape).numel()].reshape(shape).to(dtype)
    back = unpack(json.loads(json.dumps(pack(tensor))))
    assert back.dtype == dtype
    assert torch.equal(back, tensor)


@pytest.mark.parametrize("array", [np.arange(5), np.zeros((2, 0)), np.ones((2, 2), ">f4"), np.float32(2)], ids=repr)
def test_an_array_comes_back(array: Any) -> None:
    np.testing.assert_array_equal(unpack(json.loads(json.dumps(pack(array)))), array)


def test_what_is_none_of_these_stays_the_same_object() -> None:
    thing = object()
    assert pack({"a": [thing]})["a"][0] is thing


def test_what_is_packed_does_not_follow_later_changes() -> None:
    tensor, part = torch.zeros(3), [1]
    packed = pack({"tensor": tensor, "part": part})
    tensor.fill_(1)
    part.append(2)
    assert unpack(packed)["part"] == [1]
    assert unpack(packed)["tensor"].sum() == 0


def _torch() -> tuple[Source, Callable[[], Any]]:
    generator = torch.Generator().manual_seed(2**62 + 1)
    return TorchGenerator(generator), lambda: torch.randn(3, generator=generator).tolist()


def _python() -> tuple[Source, Callable[[], Any]]:
    generator = random.Random(3)
    return PythonGenerator(generator), lambda: generator.gauss(0, 1)


def _numpy(bits: type[Any]) -> Callable[[], tuple[Source, Callable[[], Any]]]:
    def made() -> tuple[Source, Callable[[], Any]]:
        generator = np.random.Generator(bits(3))
        return NumpyBits(generator.bit_generator), generator.standard_normal

    made.__name__ = bits.__name__
    return made


def _numpy_state() -> tuple[Source, Callable[[], Any]]:
    generator = np.random.RandomState(3)  # what is tested
    return NumpyRandomState(generator), generator.standard_normal


KINDS = (
    _torch,
    _python,
    _numpy_state,
    *map(_numpy, (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64)),
)


@pytest.mark.parametrize("made", KINDS, ids=lambda made: made.__name__)
@pytest.mark.parametrize("num_drawn", [0, 1, 2, 700])
def test_a_generator_goes_on_where_its_state_was_taken(
    made: Callable[[], tuple[Source, Callable[[], Any]]], num_drawn: int
) -> None:
    source, draw = made()
    for _ in range(num_drawn):
        draw()
    state = source.get()
    expected = [draw() for _ in range(5)]
    assert source.get() != state
    other, draw_other = made()
    other.set(json.loads(json.dumps(state)))
    assert [draw_other() for _ in range(5)] == expected
    assert len(json.dumps(state)) < 3500


def test_a_state_of_torch_with_other_words_is_kept_whole() -> None:
    odd = torch.full((5056,), 255, dtype=torch.uint8)
    assert torch.equal(unpack(pack(odd)), odd)
