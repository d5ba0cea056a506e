"""The specs of ops on fields: what they read and write, their JSON, the arguments they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from stoker.errors import SpecError
from stoker.ops import DecodeJson, DecodeNumpy, Label, Rename, Select
from stoker.ops.op import Op

SPECS: list[Op] = [
    Label("cls"),
    Label("cls", to="label", classes=("cat", "dog")),
    Label("cls", classes={"cat": 7}, default=-1),
    DecodeJson("json", default=None),
    DecodeJson("json", missing="skip"),
    DecodeNumpy("npy", to="x", default=[0, 0]),
    Select("image", "cls"),
    Select("image", missing="skip"),
    Rename({"a": "b", "b": "a"}),
]


def loosely(op_type: Any) -> Any:
    """An op for mistakes that types would catch."""
    return op_type


@pytest.mark.parametrize("op", SPECS, ids=repr)
def test_specs_go_through_json(op: Op) -> None:
    step = json.loads(json.dumps(op.to_json()))
    assert step.pop("op") == type(op).__name__
    assert type(op).from_json(step, allow_code=False) == op
    assert not op.is_code


def test_no_default_and_a_default_of_none_differ() -> None:
    assert "default" not in DecodeJson("json").to_json()
    assert DecodeJson("json", default=None).to_json()["default"] is None
    assert DecodeJson("json", default=None) != DecodeJson("json")


def test_fields_read_written_and_dropped() -> None:
    op = Label("cls", to="label")
    assert (op.reads, op.writes, op.drops, op.label) == (("cls",), ("label",), ("cls",), "Label('cls')")
    assert Label("cls").drops == ()
    assert Rename({"a": "b", "b": "c"}).drops == ("a",)
    assert Rename({"a": "b", "b": "a"}).drops == ()
    assert Select("x", "y").label == "Select('x')"


@pytest.mark.parametrize(
    "make, reason",
    [
        (lambda: Label("cls", default=0, missing="skip"), "contradict"),
        (lambda: Label("cls", default="0"), "default must be an integer"),
        (lambda: Label("cls", classes=("a", "a")), "twice"),
        (lambda: loosely(Label)("cls", klasses=("a",)), "did you mean 'classes'"),
        (lambda: loosely(Label)("cls", missing="ignore"), "'missing'"),
        (lambda: DecodeJson("json", default={1, 2}), "JSON value"),
        (Select, "at least one"),
        (lambda: Select("a", "a"), "different fields"),
        (lambda: Rename({}), "at least one"),
        (lambda: Rename({"a": "c", "b": "c"}), "different new names"),
    ],
)
def test_wrong_arguments_are_refused(make: Callable[[], Any], reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        make()
