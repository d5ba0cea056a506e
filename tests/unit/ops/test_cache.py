"""Where a Cache may stand, and that nothing but speed knows of it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import ops
from stoker.backends.registry import compile_ops
from stoker.errors import SpecError
from stoker.ops.cache import without_cache
from support import user_functions

SOURCE = stoker.tar("/nowhere/{0..3}.tar")
DECODE = ops.DecodeImage("jpg", to="image")


def pipeline(*steps: Any) -> stoker.Pipeline:
    return stoker.Pipeline(SOURCE, steps, batch_size=4)


def test_a_pipeline_with_a_cache_goes_through_json_whole() -> None:
    cache = ops.Cache("s3://bucket/decoded", max_bytes=10, storage_options={"region": "here"}, version=3)
    made = pipeline(DECODE, cache, ops.RandomHorizontalFlip("image"))
    assert stoker.Pipeline.from_json(made.to_json()) == made
    assert json.loads(made.to_json())["ops"][1]["op"] == "Cache"


def test_neither_fingerprint_nor_random_numbers_know_of_it() -> None:
    steps = [DECODE, ops.Resize("image", 40), ops.RandomResizedCrop("image", 24), ops.RandomHorizontalFlip("image")]
    plain = pipeline(*steps)
    samples = np.arange(5)
    expected = compile_ops(plain.ops).uniforms(7, 2, samples)
    for place in (1, 2):
        cached = pipeline(*steps[:place], ops.Cache(), *steps[place:])
        assert cached.fingerprint == plain.fingerprint
        assert without_cache(cached.ops) == plain.ops
        program = compile_ops(cached.ops)
        assert program.prefix_length == place
        np.testing.assert_array_equal(program.uniforms(7, 2, samples), expected)


def test_secrets_are_neither_shown_nor_sent() -> None:
    cache = ops.Cache("s3://bucket/decoded", storage_options={"region": "here", "secret_access_key": "hush"})
    assert "hush" not in repr(cache)
    assert "hush" not in json.dumps(cache.to_json())
    assert cache.to_json()["storage_options"] == {"region": "here"}


@pytest.mark.parametrize(
    "steps, expected",
    [
        ([ops.Cache(), DECODE], "stands first"),
        ([DECODE, ops.Cache(), ops.Resize("image", 8), ops.Cache()], "one Cache at most"),
        (
            [DECODE, ops.RandomHorizontalFlip("image"), ops.Cache()],
            r"after RandomHorizontalFlip\('image'\), which draws",
        ),
        ([ops.Map(user_functions.draw), ops.Cache()], "which draws random numbers"),
        ([ops.Map(user_functions.add_one), ops.Cache()], r"Map\(…, seed_globals=False\)"),
        ([ops.Filter(user_functions.is_even), ops.Cache()], r"Filter\(…, seed_globals=False\)"),
    ],
)
def test_a_wrong_place_is_refused_with_what_to_do(steps: list[Any], expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        pipeline(*steps)


def test_functions_that_say_they_draw_nothing_may_stand_before_it() -> None:
    made = pipeline(ops.Map(user_functions.add_one, seed_globals=False), ops.Cache())
    assert compile_ops(made.ops).prefix_length == 1


@pytest.mark.parametrize("arguments, expected", [({"place": ""}, "empty"), ({"max_bytes": 0}, "at least 1")])
def test_wrong_arguments_are_refused(arguments: Any, expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        ops.Cache(**arguments)
