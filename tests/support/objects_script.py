"""A user's script: what it defines goes to a worker by value, and comes back as what it was.

`python -m support.objects_script new|fork` ends with 0 if that is so.
"""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from support.objects_worker import Worker


class Color(enum.Enum):
    RED = 1
    BLUE = "b"


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Sample:
    color: Color = Color.RED
    parts: list[Any] = field(default_factory=list)
    num_made = 0

    @staticmethod
    def half(x: int) -> float:
        return x / 2

    class Inner:
        """A class in a class."""


class Marked(torch.Tensor):
    """A tensor of the user's own."""


def double(x: int) -> int:
    return 2 * x


def make() -> list[Any]:
    Sample.num_made = 99  # the worker's own copy of the class
    sample = Sample(Color.BLUE, [Pair(1, Sample.Inner()), torch.ones(3).as_subclass(Marked)])
    return [sample, Sample, Color.RED, double, Sample.half, [Pair(i, None) for i in range(100)], lambda: 5]


def make_local(scale: int) -> Any:
    class Local:
        """A class that only the worker has."""

        def __init__(self) -> None:
            self.scale = scale

    return [Local(), Local()]


def main(method: str) -> None:
    before = dict(vars(Sample))
    with Worker("fork" if method == "fork" else "new") as worker:
        for _ in range(3):
            sample, cls, red, function, static, pairs, nameless = worker.ask(make)
            assert type(sample) is cls is Sample
            assert red is Color.RED
            assert sample.color is Color.BLUE
            assert type(sample.parts[0]) is Pair
            assert type(sample.parts[0].second) is Sample.Inner
            assert type(sample.parts[1]) is Marked
            assert function is double
            assert static is Sample.half
            assert {type(pair) for pair in pairs} == {Pair}
            assert nameless() == 5
        assert dict(vars(Sample)) == before, "a result changes nothing of the class"
        one, two = worker.ask(make_local, 3)
        again, _ = worker.ask(make_local, 4)
        assert type(one) is type(two)
        assert (one.scale, again.scale) == (3, 4)
        assert len(worker.message(make)) < 40_000


if __name__ == "__main__":
    main(sys.argv[1])
