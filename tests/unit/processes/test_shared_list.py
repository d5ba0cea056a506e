"""A shared list behaves as the list it was made from."""

import array
import bisect
import collections
import copy
import csv
import io
import itertools
import json
import operator
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stoker.processes.columns import MIN_ROWS, Flat, Layout, NotFlatError, flatten, layout_of
from stoker.processes.columns import columns_by_block as blocks_of
from stoker.processes.shared_list import SharedList, WrittenList

ints = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(), max_size=6)  # surrogates too
floats = st.floats(allow_nan=False)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int": ints,
    "str": texts,
    "bytes": st.binary(max_size=6),
    "float": floats,
    "bool": st.booleans(),
    "row": st.tuples(texts, ints, st.booleans()),
    "row of one": st.tuples(floats),
}


def shared(items: list[Any], layout: Layout | None = None) -> SharedList:
    layout = layout or layout_of(items)
    assert layout is not None
    parts = [
        memoryview(buffer).cast("B")
        for columns in blocks_of(items, layout)
        for column, kind in zip(columns, layout.kinds, strict=True)
        for buffer in flatten(column, kind)
    ]
    return SharedList(Flat(layout, parts))


def long_list(few: list[Any]) -> list[Any]:
    return list(itertools.islice(itertools.cycle(few), MIN_ROWS + 7))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(drawn=st.data())
def test_all_values_are_exactly_what_they_were(kind: str, drawn: st.DataObject) -> None:
    plain = long_list(drawn.draw(st.lists(KINDS[kind], min_size=1, max_size=9)))
    found = shared(plain)
    assert list(map(repr, found)) == list(map(repr, plain))  # -0.0, True
    for index in (0, 1, -1, 4095, MIN_ROWS, -len(plain)):
        assert repr(found[index]) == repr(plain[index])


@pytest.mark.parametrize(
    "odd", [None, 1.5, True, 2**63, -(2**63) - 1, "x", (1,), [1], np.int64(3), type("Int", (int,), {})(4)], ids=repr
)
@pytest.mark.parametrize("place", [0, 100, 40_000])
def test_other_values_make_it_no_shared_list(odd: Any, place: int) -> None:
    items = list(range(40_001))
    items[place] = odd
    assert is_refused(items)


@pytest.mark.parametrize(
    "items",
    [
        [float("nan")] * MIN_ROWS,
        [()] * MIN_ROWS,
        [(1, 2), (1,)] * MIN_ROWS,
        [(1, "a"), ("a", 1)] * MIN_ROWS,
        [["a"]] * MIN_ROWS,
        ["a long text that all have in common" * 9] * MIN_ROWS,
        list(range(MIN_ROWS - 1)),
    ],
    ids=["nan", "no columns", "ragged", "mixed", "lists", "repeated", "short"],
)
def test_what_does_not_fit_is_no_shared_list(items: list[Any]) -> None:
    assert is_refused(items)


def is_refused(items: list[Any]) -> bool:
    try:
        return layout_of(items) is None or shared(items) is None
    except NotFlatError:
        return True


def test_blocks_of_long_items_are_short() -> None:
    plain = [bytes([i % 256]) * 20_000 for i in range(MIN_ROWS)]
    layout = layout_of(plain)
    assert layout is not None
    assert layout.block_rows_log2 < 8
    assert shared(plain) == plain


NUMBERS = list(range(5000))
TEXTS = [f"n{i}" for i in range(5000)]


def unpacked(x: list[Any]) -> Any:
    first, *others = x
    return first, others


def with_part(plain: list[Any], x: list[Any]) -> list[Any]:
    plain[1:1] = x
    return plain


def extended(plain: list[Any], x: list[Any]) -> list[Any]:
    plain.extend(x)
    return plain


def added(plain: list[Any], x: list[Any]) -> list[Any]:
    plain += x
    return plain


def multiplied(plain: list[Any], times: int) -> bool:
    before = plain
    plain *= times
    return plain is before


def in_c(name: str, items: list[Any]) -> Any:
    """Functions in C, many of which look at a list's memory."""
    calls: dict[str, Callable[[Any], Any]] = {
        "list": list,
        "tuple": tuple,
        "set": set,
        "star": lambda x: [*x],
        "call": lambda x: max(*x),
        "unpack": unpacked,
        "slice assignment": lambda x: with_part([1, 2], x),
        "extend": lambda x: extended([0], x),
        "iadd": lambda x: added([0], x),
        "plain + x": lambda x: [0] + x,  # noqa: RUF005  # that is what is tried
        "x + plain": lambda x: x + [0],  # noqa: RUF005
        "x * 2": lambda x: x * 2,
        "2 * x": lambda x: 2 * x,
        "sum of lists": lambda x: sum([x, x], []),  # noqa: RUF017  # that is what is tried
        "json": lambda x: json.dumps({"a": x}),
        "json, indented": lambda x: json.dumps([x], indent=1),
        "array": lambda x: array.array("q", x),
        "fromkeys": dict.fromkeys,
        "sorted": sorted,
        "zip": lambda x: list(zip(x, x, strict=True)),
        "itemgetter": operator.itemgetter(7, -1, slice(4, 9)),
        "bisect": lambda x: bisect.bisect(x, x[100]),
        "deque": collections.deque,
        "Counter": collections.Counter,
        "islice": lambda x: list(itertools.islice(x, 10, 20)),
        "reversed": lambda x: list(reversed(x)),
        "min": min,
        "str": str,
        "format": lambda x: f"{x!r} {x}",
        "csv": lambda x: csv.writer(io.StringIO()).writerow(x),
        "choice": lambda x: random.Random(1).choice(x),
        "sample": lambda x: random.Random(1).sample(x, 50),
        "choices": lambda x: random.Random(1).choices(x, k=9),
        "shuffle": lambda x: random.Random(1).sample(x[:], len(x)),
        "pickle": lambda x: pickle.loads(pickle.dumps(x)),
        "old pickle": lambda x: pickle.loads(pickle.dumps(x, 2)),
        "copy": copy.copy,
        "deepcopy": lambda x: copy.deepcopy({"a": x, "b": [x]}),
        "np.array": lambda x: np.array(x).tolist(),
        "np.asarray of two": lambda x: np.asarray([x, x]).tolist(),
        "np.unique": lambda x: np.unique(x).tolist(),
        "np.random": lambda x: np.random.default_rng(1).choice(x, 5).tolist(),
        "pa.array": lambda x: pa.array(x).to_pylist(),
        "pa.table": lambda x: pa.table({"a": x}).to_pydict(),
    }
    return calls[name](items)


C_CALLS = [
    *("list", "tuple", "set", "star", "call", "unpack", "slice assignment", "extend", "iadd", "plain + x", "x + plain"),
    *("x * 2", "2 * x", "sum of lists", "json", "json, indented", "fromkeys", "sorted", "zip", "itemgetter"),
    *(
        "deque",
        "Counter",
        "islice",
        "reversed",
        "min",
        "str",
        "format",
        "csv",
        "choice",
        "sample",
        "choices",
        "shuffle",
    ),
    *("pickle", "old pickle", "copy", "deepcopy", "np.array", "np.asarray of two", "np.unique", "np.random"),
    *("pa.array", "pa.table"),
]


@pytest.mark.parametrize("name", [*C_CALLS, "array", "bisect"])
def test_c_code_sees_the_numbers(name: str) -> None:
    items = shared(NUMBERS)
    assert in_c(name, items) == in_c(name, NUMBERS)
    assert type(items) is SharedList, "a function that only reads made it an ordinary list"


@pytest.mark.parametrize("name", C_CALLS)
def test_c_code_sees_the_texts(name: str) -> None:
    assert in_c(name, shared(TEXTS)) == in_c(name, TEXTS)


def test_text_is_joined() -> None:
    assert "".join(shared(TEXTS)) == "".join(TEXTS)
    assert str(shared(TEXTS)[3:4]) == str(TEXTS[3:4])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.tensor(x).tolist(),
        lambda x: torch.as_tensor(x).tolist(),
        lambda x: torch.tensor([x, x]).tolist(),
        lambda x: torch.LongTensor(x).tolist(),
        lambda x: torch.arange(5000)[x].tolist(),
        lambda x: [part.tolist() for part in torch.utils.data.default_collate([x, x])],
        lambda x: torch.utils.data.Subset(range(9000), x)[4999],  # type: ignore[arg-type]
        lambda x: np.arange(5000)[x].tolist(),
    ],
)
def test_torch_sees_the_items(call: Callable[[Any], Any]) -> None:
    assert call(shared(NUMBERS)) == call(NUMBERS)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: array.array("q").fromlist(x),
        lambda x: pa.array([x, x]),
        lambda x: torch.split(torch.zeros(sum(NUMBERS)), x),
        lambda x: __import__("heapq").heapify(x),
        lambda x: operator.concat([], x)[0] == 0,
        lambda x: list.__getitem__(x, 0) == 0,
        lambda x: json.dumps(list.copy(x)),
    ],
)
def test_what_only_looks_at_the_memory_fails_and_does_not_lie(call: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, pa.ArrowInvalid)):
        call(shared(NUMBERS))


def test_errors_are_a_lists() -> None:
    for plain in (NUMBERS, shared(NUMBERS)):
        with pytest.raises(IndexError, match="list index out of range"):
            plain[5000]
        with pytest.raises(TypeError, match="list indices must be integers or slices, not str"):
            plain["a"]  # type: ignore[call-overload]
        with pytest.raises(ValueError, match="slice step cannot be zero"):
            plain[::0]
        with pytest.raises(TypeError, match="unhashable"):
            hash(plain)
        with pytest.raises(TypeError, match="tuple"):
            plain + (1,)  # type: ignore[operator]  # noqa: RUF005
        with pytest.raises(TypeError):
            plain < (1,)  # type: ignore[operator]  # noqa: B015
        with pytest.raises(ValueError, match="not in"):
            plain.index(-5)


def test_becomes_an_ordinary_list_when_changed() -> None:
    items = shared(NUMBERS)
    items[3] = 8
    assert type(items) is WrittenList
    assert items[:5] == [0, 1, 2, 8, 4]
    assert json.dumps(items) == json.dumps([0, 1, 2, 8, *range(4, 5000)])
    items.append(items)
    assert copy.deepcopy(items)[-1][3] == 8
    assert type(pickle.loads(pickle.dumps(items))) is list


def test_is_equal_to_itself_and_its_like() -> None:
    first, second, written = shared(NUMBERS), shared(NUMBERS), shared(NUMBERS)
    written[0] = 0
    for left, right in itertools.product((first, second, written, NUMBERS), repeat=2):
        assert left == right
        assert not left != right  # noqa: SIM202
        assert left <= right
        assert not left < right
    assert first != NUMBERS[:-1]
    unlike: Any = tuple(NUMBERS)
    assert first != unlike
    assert [*first, 1] > NUMBERS


class Lists(RuleBasedStateMachine):
    """A shared list and a plain one go through the same; what they give and how they fail is equal."""

    @initialize(items=st.sampled_from([NUMBERS[:300], TEXTS[:300], list(zip(TEXTS, NUMBERS, strict=True))[:300]]))
    def make(self, items: list[Any]) -> None:
        self.plain = list(items)
        is_rows = type(items[0]) is tuple
        kinds = tuple(map(type, items[0])) if is_rows else (type(items[0]),)
        self.shared: list[Any] = shared(items, Layout(len(items), kinds, is_rows, 6))
        self.running: list[tuple[Any, Any]] = []

    def same(self, act: Callable[[Any], Any]) -> None:
        results: list[list[Any]] = []
        for items in (self.plain, self.shared):
            try:
                results.append([act(items)])  # a NaN is the same if it is the same object
            except (TypeError, ValueError, LookupError) as error:
                results.append([type(error), str(error).replace(repr(items), "")])
        assert results[0] == results[1]

    indexes = st.one_of(st.integers(-400, 400), st.integers(-5, 5))
    slices = st.one_of(st.slices(400), st.slices(20))
    values = st.sampled_from([0, 7, "n7", ("n7", 7), None, 5.0, float("nan")])

    @rule(index=indexes)
    def item(self, index: int) -> None:
        self.same(lambda x: x[index])

    @rule(part=slices)
    def part(self, part: slice) -> None:
        self.same(lambda x: x[part])

    @rule(value=values, index=indexes)
    def search(self, value: Any, index: int) -> None:
        self.same(lambda x: (value in x, x.count(value)))
        self.same(lambda x: x.index(value))
        self.same(lambda x: x.index(value, index))
        self.same(lambda x: x.index(value, -index, index))

    @rule(value=values)
    def compare(self, value: Any) -> None:
        self.same(lambda x: (x == value, x != value, x == [value], [value] == x, x == list(x), tuple(x) == x))
        self.same(lambda x: (x < [value], [value] <= x))

    @rule()
    def read(self) -> None:
        self.same(lambda x: (len(x), bool(x), list(x), [*reversed(x)], repr(x), x + [1], [1] + x))  # noqa: RUF005
        self.same(sorted)

    @rule(direction=st.sampled_from([iter, reversed]))
    def start(self, direction: Any) -> None:
        self.running.append((direction(self.plain), direction(self.shared)))

    @rule(steps=st.sampled_from([1, 3, 260, 6000]))
    def step(self, steps: int) -> None:
        for plain, shared_ in self.running:
            assert list(itertools.islice(plain, steps)) == list(itertools.islice(shared_, steps))

    @rule(index=indexes, value=values)
    def change(self, index: int, value: Any) -> None:
        self.same(lambda x: operator.setitem(x, index, value))

    @rule(part=slices, new=st.lists(values, max_size=3))
    def change_part(self, part: slice, new: list[Any]) -> None:
        self.same(lambda x: operator.setitem(x, part, new))

    @rule(index=indexes)
    def drop(self, index: int) -> None:
        self.same(lambda x: operator.delitem(x, index))
        self.same(lambda x: x.pop(index))

    @rule(value=values, index=indexes)
    def add(self, value: Any, index: int) -> None:
        self.same(lambda x: (x.append(value), x.insert(index, value), x.extend([value, value])))

    @rule(value=values)
    def remove(self, value: Any) -> None:
        self.same(lambda x: x.remove(value))

    @rule(reverse=st.booleans())
    def sort(self, reverse: bool) -> None:
        self.same(lambda x: x.sort(key=str, reverse=reverse))

    @rule()
    def sort_mixed(self) -> None:
        if len(set(map(type, self.plain))) == 1:  # what a list is after a sort that failed is not promised
            self.same(lambda x: x.sort())

    @rule()
    def turn(self) -> None:
        self.same(lambda x: x.reverse())

    @rule(times=st.sampled_from([0, 1, 2]))
    def multiply(self, times: int) -> None:
        if len(self.plain) < 2_000:
            self.same(lambda x: x * times)
            self.same(lambda x: multiplied(x, times))

    @rule()
    def add_in_place(self) -> None:
        if len(self.plain) < 2_000:
            self.same(lambda x: added(x, x) is x)

    @rule()
    def empty(self) -> None:
        self.same(lambda x: x.clear())

    @rule()
    def copies(self) -> None:
        self.same(lambda x: (x.copy(), copy.copy(x)))
        self.same(lambda x: (repr(copy.deepcopy(x)), repr(pickle.loads(pickle.dumps(x)))))

    @invariant()
    def are_equal(self) -> None:
        assert self.shared == self.plain
        assert self.plain == self.shared


Lists.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLists = Lists.TestCase
