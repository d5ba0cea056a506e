"""Samples that lack a field (pain 46)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import ops
from stoker.errors import SampleError
from support.loading import batches_of, tar_of


def thirds(folder: Path) -> str:
    """Nine samples, of which each third lacks its json."""
    found = []
    for number in range(9):
        fields = {"cls": str(number).encode(), "json": json.dumps({"n": number}).encode()}
        if number % 3 == 2:
            del fields["json"]
        found.append((f"{number}", fields))
    return tar_of(folder / "a.tar", found)


def read(url: str, *steps: Any, **settings: Any) -> list[Any]:
    pipeline = stoker.Pipeline(stoker.tar(url), [*steps, ops.Label("cls")], **{"batch_size": 9, **settings})
    return batches_of(pipeline)


def test_a_missing_field_says_what_is_there(tmp_path: Path) -> None:
    """Pain 46: a required field that is missing gives an error that names sample, op, and the fields that are there."""
    with pytest.raises(SampleError, match=r"row 2 \(key '2'\): DecodeJson\('json'\): no field 'json'.*has: cls"):
        read(thirds(tmp_path), ops.DecodeJson("json"))


def test_a_missing_field_takes_its_default(tmp_path: Path) -> None:
    """Pain 46: with ``default=`` a sample without the field gets that value."""
    (batch,) = read(thirds(tmp_path), ops.DecodeJson("json", default={"n": -1}), lanes=1)
    assert np.asarray(batch["json"]["n"]).tolist() == [0, 1, -1, 3, 4, -1, 6, 7, -1]


def test_a_missing_field_may_be_left_out(tmp_path: Path) -> None:
    """Pain 46: with ``missing="skip"`` and ``collate="list"`` the sample stays, and the row shows None."""
    (batch,) = read(thirds(tmp_path), ops.DecodeJson("json", missing="skip"), lanes=1, collate={"json": "list"})
    assert batch["cls"].tolist() == list(range(9))
    assert batch["json"] == [None if number % 3 == 2 else {"n": number} for number in range(9)]


def test_a_users_key_error_is_not_taken_for_a_missing_field(tmp_path: Path) -> None:
    """Pain 46: a KeyError inside a user's function is shown as theirs, with the sample and the function."""

    def look_up(sample: dict[str, Any]) -> dict[str, Any]:
        return {"found": {"a": 1}["b"]}

    with pytest.raises(SampleError, match=r"row 0 \(key '0'\).*look_up.*KeyError.*'b'") as got:
        read(thirds(tmp_path), ops.Map(look_up))
    assert isinstance(got.value.__cause__, KeyError)


def test_missing_fields_follow_the_policy(tmp_path: Path) -> None:
    """Pain 46: where a field is required, samples without it are bad samples, and ``on_error`` holds for them."""
    batches = read(thirds(tmp_path), ops.DecodeJson("json"), on_error="drop", lanes=1)
    assert [label for batch in batches for label in batch["cls"].tolist()] == [0, 1, 3, 4, 6, 7]
