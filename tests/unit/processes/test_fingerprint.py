"""A fingerprint changes with whatever changes in an object."""

import dataclasses
import enum
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from stoker.processes.payload import fingerprint, pack, unpack
from stoker.processes.shared_list import SharedList


def closure_over(value: Any) -> Callable[[], Any]:
    return lambda: value


@dataclasses.dataclass
class Everything:
    array: Any = dataclasses.field(default_factory=lambda: np.ones((1000, 1000)))
    gaps: Any = dataclasses.field(default_factory=lambda: np.ones((1000, 100))[:, ::3])
    tensor: Any = dataclasses.field(default_factory=lambda: torch.ones(100_000, dtype=torch.bfloat16))
    names: Any = dataclasses.field(default_factory=lambda: [f"n{i}" for i in range(50_000)])
    rows: Any = dataclasses.field(default_factory=lambda: [(f"n{i}", i, i / 2) for i in range(50_000)])
    numbers: Any = dataclasses.field(default_factory=lambda: [-1] * 50_000)
    reals: Any = dataclasses.field(default_factory=lambda: [0.0] * 50_000)
    flags: Any = dataclasses.field(default_factory=lambda: [True] * 50_000)
    small: Any = dataclasses.field(default_factory=lambda: {"a": [1, {2, 3, "x"}], "b": None})
    function: Any = dataclasses.field(default_factory=lambda: closure_over([0]))


CHANGES: dict[str, Callable[[Everything], Any]] = {
    "array": lambda x: operator.setitem(x.array, (999, 999), 1.0000000001),
    "gaps": lambda x: operator.setitem(x.gaps, (999, 3), 2),
    "array's form": lambda x: setattr(x, "array", x.array.reshape(-1)),
    "array's dtype": lambda x: setattr(x, "array", x.array.view("i8")),
    "read-only": lambda x: x.array.setflags(write=False),
    "tensor": lambda x: operator.setitem(x.tensor, 99_999, 2),
    "name": lambda x: operator.setitem(x.names, 40_000, "other"),
    "names' order": lambda x: operator.setitem(x.names, slice(0, 2), x.names[1::-1]),
    "name to bytes": lambda x: operator.setitem(x.names, slice(None), [name.encode() for name in x.names]),
    "fewer": lambda x: x.names.pop(),
    "row": lambda x: operator.setitem(x.rows, 49_999, ("n49999", 1, 49_999 / 2)),
    "row's type": lambda x: operator.setitem(x.rows, 4, ("n4", 4, 2)),
    "-2 has the hash of -1": lambda x: operator.setitem(x.numbers, 5, -2),
    "2**61 - 2 has the hash of -1": lambda x: operator.setitem(x.numbers, 5, 2**61 - 2),
    "-1.0 has the hash of -1": lambda x: operator.setitem(x.numbers, 5, -1.0),
    "-0.0 is 0.0": lambda x: operator.setitem(x.reals, 5, -0.0),
    "nan": lambda x: operator.setitem(x.reals, 5, float("nan")),
    "False": lambda x: operator.setitem(x.flags, 5, False),
    "1 is True": lambda x: operator.setitem(x.flags, 5, 1),
    "None": lambda x: operator.setitem(x.flags, 49_000, None),
    "deep inside": lambda x: x.small["a"][1].add(5),
    "key": lambda x: x.small.update(c=1),
    "closure": lambda x: x.function.__closure__[0].cell_contents.append(1),
    "attribute": lambda x: setattr(x, "new", 1),
    "same list twice": lambda x: setattr(x, "names", x.numbers),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_changes_the_fingerprint(name: str) -> None:
    value = Everything()
    before = fingerprint(value)
    assert fingerprint(value) == before
    pack(value, "x").close()
    assert fingerprint(value) == before
    CHANGES[name](value)
    after = fingerprint(value)
    assert after != before
    assert fingerprint(value) == after


def test_a_loaded_object_has_a_fingerprint() -> None:
    payload = pack(Everything(), "x")
    found = unpack(payload.fd).load()
    before = fingerprint(found)
    assert fingerprint(found) == before
    assert type(found.names) is SharedList
    found.rows[3] = ("n3", 4, 1.5)
    assert fingerprint(found) != before


class Level(enum.Enum):
    LOW = 1


def test_fingerprints_take_what_pack_takes() -> None:
    for value in (Level.LOW, Level, lambda: 1, pickle.PickleBuffer(b"x" * 5000), memoryview(b"abc"), {1: {2}}):
        assert fingerprint(value) == fingerprint(value)
