"""Users' functions on samples: what they see, what they may draw, what becomes of their mistakes."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random.mtrand import get_bit_generator, set_bit_generator

from stoker.backends.program import Filtered
from stoker.backends.registry import compile_ops
from stoker.errors import SampleError, SampleOrigin
from stoker.ops import Filter, Map
from stoker.ops.op import Op
from stoker.randomness import uniforms
from stoker.sample import RawSample
from support import user_functions
from support.samples import Picture

compiled = functools.lru_cache(compile_ops)


def run(*ops: Op, index: int = 0, epoch: int = 0, **fields: Any) -> dict[str, Any]:
    """The fields of sample ``index`` after some ops."""
    program = compiled(ops)
    drawn = uniforms(7, epoch, np.array([index]), 0, program.num_uniforms)[0]
    raw = RawSample(SampleOrigin("s3://bucket/0.tar", index, str(index)), fields)
    return program.run(raw, index=index, seed=7, epoch=epoch, uniforms=drawn).fields


def global_states() -> list[Any]:
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002  # the shared generators are what is looked at
    return [random.getstate(), repr(numpy_state), torch.get_rng_state().tolist()]


def draw_globally(fields: dict[str, Any]) -> dict[str, Any]:
    drawn = (random.getrandbits(62), int(np.random.randint(2**62)), int(torch.randint(2**62, ())))  # noqa: NPY002
    return {**fields, "drawn": drawn}


def test_a_function_takes_and_gives_a_dict() -> None:
    assert run(Map(user_functions.add_one), x=1) == {"x": 2}
    assert run(Map(lambda fields: {"y": fields["x"]}), x=1) == {"y": 1}


@pytest.mark.parametrize("ask", [user_functions.draw, draw_globally])
def test_draws_differ_for_all_samples_epochs_and_ops_and_are_equal_when_run_again(ask: Callable[..., Any]) -> None:
    def again(fields: dict[str, Any]) -> dict[str, Any]:
        return {"first": fields["drawn"]}

    first, second, third = Map(ask), Map(again), Map(ask)

    def everything(indexes: range) -> dict[tuple[int, int], Any]:
        return {
            (epoch, index): run(first, second, third, index=index, epoch=epoch)
            for epoch in range(2)
            for index in indexes
        }

    found = everything(range(100))
    draws = [step[name] for step in found.values() for name in ("first", "drawn")]
    if isinstance(draws[0], tuple):
        draws = [number for drawn in draws for number in drawn]
    assert len(set(draws)) == len(draws)
    assert everything(range(99, -1, -1)) == found


@pytest.mark.parametrize("num_normals", [0, 1])  # of an odd number, one waits to be drawn
def test_the_users_own_random_states_are_left_as_they_were(num_normals: int) -> None:
    np.random.seed(3)  # noqa: NPY002
    np.random.standard_normal(num_normals)  # noqa: NPY002
    before = global_states()
    next_normal = np.random.RandomState()
    next_normal.set_state(np.random.get_state())  # noqa: NPY002
    run(Map(draw_globally))
    assert global_states() == before
    with pytest.raises(SampleError):
        run(Map(lambda fields: draw_globally(fields)["no such"]))
    assert global_states() == before
    run(Map(lambda fields: fields, seed_globals=False))
    assert global_states() == before
    assert np.random.standard_normal() == next_normal.standard_normal()  # noqa: NPY002


def test_a_user_with_another_bit_generator_keeps_it() -> None:
    own, found = get_bit_generator(), np.random.Philox(key=1)
    set_bit_generator(found)
    try:
        assert run(Map(draw_globally))["drawn"] == run(Map(draw_globally))["drawn"]
        assert get_bit_generator() is found
    finally:
        set_bit_generator(own)


def test_global_draws_are_equal_whatever_was_drawn_before_and_in_any_thread() -> None:
    expected = [run(Map(draw_globally), index=i)["drawn"] for i in range(40)]
    found: dict[int, Any] = {}

    def work(first: int) -> None:
        for i in range(first, 40, 4):
            found[i] = run(Map(draw_globally), index=i)["drawn"]

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(40)] == expected


@pytest.mark.parametrize("op", [Map(lambda fields, rng: fields), Map(lambda fields: fields, seed_globals=False)])
def test_functions_that_leave_the_globals_alone_run_at_the_same_time(op: Map) -> None:
    barrier = threading.Barrier(2)
    meet = Map(lambda fields, rng: {"met": barrier.wait(10)}) if op.takes_rng else None
    meet = meet or Map(lambda fields: {"met": barrier.wait(10)}, seed_globals=False)
    met = []
    threads = [threading.Thread(target=lambda: met.append(run(meet)["met"])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(met) == [0, 1]


def test_errors_of_the_function_name_it_and_keep_the_original() -> None:
    with pytest.raises(SampleError) as caught:
        run(Map(user_functions.add_one), index=3, y=1)
    assert caught.value.reason == "support.user_functions:add_one raised KeyError: 'x'"
    assert caught.value.op == "Map(support.user_functions:add_one)"
    assert caught.value.origin is not None
    assert caught.value.origin.key == "3"
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_sample_error_of_the_function_stays_what_it_is() -> None:
    def refuse(fields: dict[str, Any]) -> dict[str, Any]:
        raise SampleError("too dark")

    with pytest.raises(SampleError, match="too dark") as caught:
        run(Map(refuse))
    assert caught.value.reason == "too dark"


@pytest.mark.parametrize(
    "returned, reason", [(None, "lack a return"), ([1], "found list"), ({1: 2}, "field names that are strings")]
)
def test_what_is_no_dict_of_fields_is_refused(returned: Any, reason: str) -> None:
    with pytest.raises(SampleError, match=reason):
        run(Map(lambda fields: returned))


def test_filter_says_which_op_refused() -> None:
    op = Filter(user_functions.is_even, on_false="drop")
    assert run(op, x=2) == {"x": 2}
    with pytest.raises(Filtered) as caught:
        run(op, x=1)
    assert caught.value.op == op


@pytest.mark.parametrize("verdict, wanted", [(np.bool_(True), True), (1, True), (0, False), (None, False), ([], False)])
def test_any_value_with_a_truth_is_a_verdict(verdict: Any, wanted: bool) -> None:
    if wanted:
        run(Filter(lambda fields: verdict))
    else:
        with pytest.raises(Filtered):
            run(Filter(lambda fields: verdict))


def test_an_array_is_no_verdict() -> None:
    with pytest.raises(SampleError, match="True or False"):
        run(Filter(lambda fields: np.array([True, False])))


@pytest.mark.parametrize(
    "look",
    [
        lambda fields: fields["image"], lambda fields: fields.get("image"), lambda fields: fields.pop("image"),
        lambda fields: {**fields}["image"], lambda fields: dict(fields)["image"], lambda fields: fields.copy()["image"],
        lambda fields: dict(fields.items())["image"], lambda fields: list(fields.values())[1],
        lambda fields: fields.popitem()[1], lambda fields: fields.setdefault("image", None),
        lambda fields: (fields | {})["image"], lambda fields: ({} | fields)["image"],
    ],
)  # fmt: skip
def test_a_picture_is_an_array_however_it_is_looked_at(look: Callable[[Any], Any]) -> None:
    found = run(Map(lambda fields: {"seen": look(fields)}), raw=b"", image=Picture((2, 2, 3), 5))["seen"]
    assert type(found) is np.ndarray
    assert found.tolist() == np.full((2, 2, 3), 5).tolist()


def test_raw_fields_are_bytes_and_arrays_can_be_written() -> None:
    def change(fields: dict[str, Any]) -> dict[str, Any]:
        assert fields["raw"] == b"abc"
        fields["array"][0] = 9
        fields["image"][:] = 8
        return fields

    readonly = np.frombuffer(b"\x01\x02", np.uint8)
    found = run(Map(change), raw=memoryview(b"xabc")[1:], array=readonly, image=Picture((1, 1, 1), 1))
    assert found["array"].tolist() == [9, 2]
    assert found["image"].item() == 8
    assert readonly.tolist() == [1, 2]


def test_a_picture_that_is_not_looked_at_is_not_made() -> None:
    bad = Picture((2, 2, 3), 0, bad=True)
    found = run(Map(user_functions.add_one), Filter(lambda fields: "image" in fields), x=1, image=bad)
    assert found == {"x": 2, "image": bad}


def test_a_bad_picture_is_a_bad_sample_when_it_is_looked_at() -> None:
    with pytest.raises(SampleError, match="cut short"):
        run(Map(lambda fields: {"x": fields["image"]}), image=Picture((2, 2, 3), 0, bad=True))


def test_pop_and_get_are_those_of_a_dict() -> None:
    def ask(fields: dict[str, Any]) -> dict[str, Any]:
        assert fields.pop("no", 3) == 3
        assert fields.get("no") is None
        with pytest.raises(KeyError, match="no"):
            fields.pop("no")
        return fields

    assert run(Map(ask), x=1) == {"x": 1}
