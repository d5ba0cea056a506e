"""Users' functions: names that lead back to them, digests that tell them apart."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stoker.errors import SpecError
from stoker.ops.filter import Filter
from stoker.ops.functions import digest, name_of, resolve
from stoker.ops.map import Map
from support import user_functions


def make(step: Any) -> Callable[[Any], Any]:
    """A closure."""
    return lambda fields: fields["x"] + step


@pytest.mark.parametrize(
    "fn",
    [user_functions.add_one, user_functions.Holder.keep, user_functions.add_two, json.loads, len],
    ids=lambda fn: fn.__qualname__,
)
def test_importable_functions_go_through_json(fn: Callable[..., Any]) -> None:
    step = json.loads(json.dumps(Map(fn).to_json()))
    assert step.pop("op") == "Map"
    assert Map.from_json(step, allow_code=True) == Map(fn)


@pytest.mark.parametrize(
    "fn, reason",
    [
        (lambda fields: fields, "is a lambda"),
        (make(1), "is a lambda"),
        (user_functions.doubled(len), "another object"),
        (functools.partial(user_functions.draw), "is an object"),
    ],
)
def test_functions_without_a_name_say_why_and_what_to_do(fn: Callable[..., Any], reason: str) -> None:
    with pytest.raises(SpecError, match=rf"{reason}.*top level of a module"):
        Map(fn).to_json()


def test_a_function_inside_another_has_no_name() -> None:
    def inner(fields: dict[str, Any]) -> dict[str, Any]:
        return fields

    with pytest.raises(SpecError, match="inside another function"):
        Filter(inner).to_json()
    assert Filter(inner).identity()["fn"]


def test_a_function_of_the_script_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_functions.add_one, "__module__", "__main__")
    with pytest.raises(SpecError, match="in the script"):
        name_of(user_functions.add_one)


def test_nothing_is_imported_unless_it_is_allowed() -> None:
    assert "antigravity" not in sys.modules
    with pytest.raises(SpecError, match=r"'antigravity:fly'.*allow_code=True"):
        Map.from_json({"fn": "antigravity:fly"}, allow_code=False)
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "name, reason",
    [
        ("no_such_module:f", "cannot import"), ("json:no_such", "cannot import"), ("json", "'module:qualname'"),
        ("support.user_functions:COLOURS", "is a frozenset"),
    ],
)  # fmt: skip
def test_names_that_lead_nowhere_are_refused(name: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        resolve(name)


def test_map_wants_a_function() -> None:
    with pytest.raises(SpecError, match="callable, found 'json:loads'"):
        Map("json:loads")  # type: ignore[arg-type]  # that is the mistake


def test_digests_tell_functions_apart() -> None:
    functions: list[Callable[..., Any]] = [
        make(1), make(2), lambda fields: fields, lambda fields: None, user_functions.add_one, user_functions.add_two,
        functools.partial(sorted, reverse=True), functools.partial(sorted, reverse=False),
        make(np.zeros(3)), make(np.ones(3)),
        lambda fields, options={"a": 1}: options, lambda fields, options={"a": 2}: options, len,
    ]  # fmt: skip
    assert len({digest(fn) for fn in functions}) == len(functions)
    assert digest(make(1)) == digest(make(1))


def test_functions_that_refer_to_themselves_have_a_digest() -> None:
    def ping(n: int) -> Any:
        return pong(n - 1)

    def pong(n: int) -> Any:
        return ping(n) if n else None

    items: list[Any] = []
    items.append(items)
    assert digest(ping) == digest(ping)
    assert digest(lambda fields, items=items: items)


def test_a_function_that_holds_a_generator_has_a_digest() -> None:
    """A generator has a qualified name and no module."""
    numbers = (number for number in range(3))
    assert len(digest(lambda sample: {**sample, "number": next(numbers)})) == 32


def test_callable_objects_differ_by_their_state() -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        def __call__(self, fields: dict[str, Any]) -> dict[str, Any]:
            return {"x": fields["x"] * self.factor}

    assert digest(Scale(1)) != digest(Scale(2))
    assert digest(Scale(1)) == digest(Scale(1))
    assert digest(Scale(1).__call__) != digest(Scale(2).__call__)


def test_digests_are_equal_in_every_process() -> None:
    names = ["add_one", "draw", "add_two", "colourful", "Holder.keep"]
    script = (
        "from stoker.ops.functions import digest, resolve\n"
        f"print([digest(resolve('support.user_functions:' + name)) for name in {names}])"
    )
    here = str([digest(resolve(f"support.user_functions:{name}")) for name in names])
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == here


def test_the_identity_of_a_lambda_is_json_and_follows_its_code() -> None:
    first, second = Map(lambda fields: fields), Map(lambda fields: {**fields})
    assert json.dumps(first.identity()) != json.dumps(second.identity())
    assert first.is_code


@pytest.mark.parametrize(
    "fn, takes",
    [(user_functions.draw, True), (user_functions.add_one, False), (len, False), (dict, False)],
    ids=["draw", "add_one", "len", "dict"],
)
def test_a_parameter_rng_asks_for_a_generator(fn: Callable[..., Any], takes: bool) -> None:
    assert Map(fn).takes_rng is takes
    assert Map(fn).num_uniforms == 2
    assert Map(fn, seed_globals=False).num_uniforms == (2 if takes else 0)
