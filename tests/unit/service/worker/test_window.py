"""Which batches a producer makes, keeps and drops."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker_service.worker.consumers import Key
from stoker_service.worker.window import MAX_AHEAD, MAX_PLANNED, Stage, ToPlan, ToStart, Window
from support.simple_window import SimpleWindow

SIZE = 100
FOREVER = 10**9


class Machine:
    """A window with a storage and decoders that do what it says, in any order that ``chance`` picks."""

    def __init__(
        self, memory_bytes: int, *, read_batches: int = FOREVER, max_making: int = 2, window: Any = None
    ) -> None:
        self.window: Window = window or Window(memory_bytes, max_making)
        self.reading: list[Key] = []
        self.making: list[Key] = []
        self.kept: set[Key] = set()
        self.starts: Counter[Key] = Counter()
        self.got: dict[int, list[int]] = {}
        self.hands: list[tuple[int, Key]] = []
        self.read_batches = read_batches
        self.peak_bytes = 0
        self.is_tidy = True
        """Whether what was abandoned is dropped at once."""

    def attach(self, number: int, batches: range, plan: int = 0) -> None:
        self.window.attach(number, plan, batches)
        self.got[number] = []
        self.settle()

    def ask(self, number: int, num_batches: int = 1) -> None:
        self.window.ask(number, num_batches)
        self.settle()

    def read(self, key: Key) -> None:
        self.reading.remove(key)
        self.window.ready(key)
        self.settle()

    def make(self, key: Key, num_bytes: int = SIZE) -> None:
        self.making.remove(key)
        self.kept.add(key)
        self.forget(self.window.made(key, num_bytes))
        self.settle()

    def take(self, number: int) -> None:
        key = self.window.take(number)
        assert key in self.kept, "a batch that is taken is there"
        self.got[number].append(key[1])
        self.hands.append((number, key))
        self.settle()

    def let_go(self, at: int = 0) -> None:
        _, key = self.hands.pop(at)
        assert key in self.kept, "what is in a stream's hands is not dropped"
        self.forget(self.window.let_go(key))
        self.settle()

    def detach(self, number: int) -> None:
        self.forget(self.window.detach(number))
        for item in [item for item in self.hands if item[0] == number]:
            self.hands.remove(item)
            self.forget(self.window.let_go(item[1]))
        self.settle()

    def forget(self, keys: list[Key]) -> None:
        self.kept -= set(keys)

    def settle(self) -> None:
        """Do all that can be done without waiting for anything."""
        while self._plan() or self._start() or self._drop():
            self.peak_bytes = max(self.peak_bytes, self.window.held_bytes)
        self.peak_bytes = max(self.peak_bytes, self.window.held_bytes)

    def _plan(self) -> bool:
        found = self.window.to_plan()
        if found is None or (not found.is_due and len(self.reading) >= self.read_batches):
            return False
        self.window.planned(found.key)
        self.reading.append(found.key)
        return True

    def _start(self) -> bool:
        found = self.window.to_start()
        if found is None:
            return False
        self._dropped(found.drop)
        self.window.started(found.key)
        self.making.append(found.key)
        self.starts[found.key] += 1
        return True

    def _drop(self) -> bool:
        keys = (*self.window.to_drop(), *(self.window.abandoned() if self.is_tidy else ()))
        self._dropped(keys)
        return bool(keys)

    def _dropped(self, keys: tuple[Key, ...]) -> None:
        self.window.dropped(keys)
        self.kept -= set(keys)

    def steps(self, takers: list[int]) -> list[tuple[str, int]]:
        """All that can happen next when these consumers take."""
        found = [("read", index) for index in range(len(self.reading))]
        found += [("make", index) for index in range(len(self.making))]
        found += [("take", number) for number in takers if self.window.may_take(number)]
        return found + [("let_go", index) for index in range(len(self.hands))]

    def step(self, kind: str, at: int) -> None:
        match kind:
            case "read":
                self.read(self.reading[at])
            case "make":
                self.make(self.making[at])
            case "take":
                self.take(at)
            case "let_go":
                self.let_go(at)

    def run(self, chance: random.Random, takers: list[int], num_steps: int = FOREVER) -> None:
        """Let things happen until nothing more can, or so many times."""
        while num_steps and (possible := self.steps(takers)):
            self.step(*chance.choice(possible))
            num_steps -= 1


class Both:
    """The window and its model: whatever one is asked, both are, and have to answer alike."""

    def __init__(self, memory_bytes: int, max_making: int) -> None:
        self._window, self._model = Window(memory_bytes, max_making), SimpleWindow(memory_bytes, max_making)

    @property
    def memory_bytes(self) -> int:
        return self._window.memory_bytes

    @memory_bytes.setter
    def memory_bytes(self, value: int) -> None:
        self._window.memory_bytes = self._model.memory_bytes = value

    @property
    def held_bytes(self) -> int:
        assert self._window.held_bytes == self._model.held_bytes
        return self._window.held_bytes

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            found, expected = getattr(self._window, name)(*arguments), getattr(self._model, name)(*arguments)
            if isinstance(found, list):  # what is forgotten at a time has no order
                found, expected = sorted(found), sorted(expected)
            assert found == expected, f"{name}{arguments}"
            return found

        return call

    def check(self, numbers: list[int], keys: list[Key]) -> None:
        """Ask all that they can be asked."""
        for number in numbers:
            for name in ("next_of", "may_take", "num_asked"):
                getattr(self, name)(number)
        for key in keys:
            if self.stage(key) is not None:
                self.users(key)
        for name in ("is_urgent", "to_plan", "to_start", "to_drop", "abandoned"):
            getattr(self, name)()


@st.composite
def sequences(draw: st.DrawFn) -> range:
    start, stride = draw(st.integers(0, 6)), draw(st.sampled_from([1, 2, 4]))
    return range(start, start + stride * draw(st.integers(0, 12)), stride)


consumers = st.lists(st.tuples(st.integers(0, 1), sequences()), min_size=1, max_size=5)
budgets = st.sampled_from([0, 1, SIZE, 3 * SIZE, 10 * SIZE, FOREVER])
seeds = st.integers(0, 2**32 - 1)


# -- laws -------------------------------------------------------------------------------------------------------------


@given(consumers, budgets, st.integers(0, 4), st.integers(1, 3), seeds)
def test_every_consumer_gets_its_sequence_in_order(
    wanted: list[tuple[int, range]], memory_bytes: int, read_batches: int, max_making: int, seed: int
) -> None:
    """It also says that whatever is asked for comes, for the machine runs until nothing more can happen."""
    chance = random.Random(seed)
    machine = Machine(memory_bytes, read_batches=read_batches, max_making=max_making)
    for number, (plan, batches) in enumerate(wanted):
        machine.attach(number, batches, plan)
        machine.run(chance, list(range(number)), chance.randrange(20))
        machine.ask(number, chance.randrange(4))
    numbers = list(range(len(wanted)))
    while any(len(machine.got[number]) < len(batches) for number, (_, batches) in enumerate(wanted)):
        for number in numbers:
            machine.ask(number, chance.randint(1, 3))
        machine.run(chance, numbers)
    assert [machine.got[number] for number in numbers] == [list(batches) for _, batches in wanted]
    for number in numbers:
        machine.detach(number)
    machine.run(chance, [])
    assert not machine.kept
    assert machine.window.held_bytes == 0


@given(consumers, budgets, seeds)
def test_the_budget_is_exceeded_by_what_was_asked_for_only(
    wanted: list[tuple[int, range]], memory_bytes: int, seed: int
) -> None:
    chance = random.Random(seed)
    machine = Machine(memory_bytes)
    numbers = list(range(len(wanted)))
    for number, (plan, batches) in enumerate(wanted):
        machine.attach(number, batches, plan)
        machine.ask(number)
    machine.run(chance, numbers, 10)
    for _ in range(100):
        machine.ask(chance.choice(numbers))
        machine.run(chance, numbers, 2)
        promised = sum(machine.window.num_asked(number) for number in numbers) + len(machine.hands)
        # The size of the first ones is not known until they are there: it is they that promised holds.
        assert machine.window.held_bytes <= memory_bytes + promised * SIZE


@given(st.integers(2, 5), sequences(), seeds)
def test_a_batch_is_made_once_for_all_who_come_to_it_within_the_budget(num: int, batches: range, seed: int) -> None:
    chance = random.Random(seed)
    machine = Machine(FOREVER)
    for number in range(num):
        machine.attach(number, batches)
    for number in range(num):
        machine.ask(number, len(batches))
    machine.run(chance, list(range(num)))
    assert machine.starts == Counter((0, index) for index in batches)


@given(st.integers(1, 4), sequences(), budgets, seeds)
def test_a_consumer_that_never_takes_stops_nobody(num_idle: int, batches: range, memory_bytes: int, seed: int) -> None:
    chance = random.Random(seed)
    machine = Machine(memory_bytes, read_batches=1)
    for number in range(num_idle):
        machine.attach(number, range(chance.randrange(9), 40), chance.randrange(2))
        machine.ask(number, chance.randrange(20))
    machine.run(chance, [])
    machine.attach(99, batches)
    for _ in batches:
        machine.ask(99)
        machine.run(chance, [99])
    assert machine.got[99] == list(batches)


@given(consumers, budgets, seeds)
def test_whoever_leaves_at_any_moment_leaves_nothing(
    wanted: list[tuple[int, range]], memory_bytes: int, seed: int
) -> None:
    chance = random.Random(seed)
    machine = Machine(memory_bytes)
    for number, (plan, batches) in enumerate(wanted):
        machine.attach(number, batches, plan)
        machine.ask(number, chance.randrange(5))
        machine.run(chance, list(range(number + 1)), chance.randrange(15))
    for number in range(len(wanted)):
        machine.detach(number)
        machine.run(chance, [])
    assert (machine.kept, machine.reading, machine.making, machine.window.held_bytes) == (set(), [], [], 0)


@settings(max_examples=30)
@given(seeds)
def test_decisions_end(seed: int) -> None:
    """Nothing is dropped to be made again at once, with everybody's appetite beyond the budget."""
    chance = random.Random(seed)
    machine = Machine(5 * SIZE)
    for number in range(4):
        machine.attach(number, range(number * chance.randrange(3), 60), chance.randrange(2))
        machine.ask(number, 30)
    machine.run(chance, [])
    assert max(machine.starts.values()) <= 4  # each time somebody came


@settings(max_examples=150)
@given(budgets, st.integers(1, 20), st.integers(1, 3), seeds)
def test_it_decides_as_its_model_does(memory_bytes: int, read_batches: int, max_making: int, seed: int) -> None:
    chance = random.Random(seed)
    both = Both(memory_bytes, max_making)
    machine = Machine(memory_bytes, read_batches=read_batches, window=both)
    stride, there = chance.choice([1, 2, 3]), list[int]()
    for number in range(chance.randrange(2, 8)):
        start = chance.randrange(12)
        length = chance.choice([0, 3, 20, 200])
        machine.attach(number, range(start, start + length * stride, stride), chance.randrange(2))
        there.append(number)
        for _ in range(chance.randrange(40)):
            machine.is_tidy = bool(chance.randrange(3))
            match chance.randrange(8):
                case 0 if there:
                    machine.ask(chance.choice(there), chance.choice([0, 1, 2, 5, 80]))
                case 1 if there and not chance.randrange(4):
                    machine.detach(there.pop(chance.randrange(len(there))))
                case 2 if not chance.randrange(4):
                    both.memory_bytes = chance.choice([0, 2 * SIZE, 7 * SIZE, FOREVER])
                    machine.settle()
                case _ if machine.making and not chance.randrange(3):
                    machine.make(machine.making[0], chance.choice([0, SIZE // 3, SIZE, 3 * SIZE]))
                case _:
                    machine.run(chance, there, 1)
            both.check(there, [(plan, index) for plan in (0, 1) for index in range(20)])


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the interpreter's operations in what is called inside."""
    found: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            found["operations"] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield found
    finally:
        sys.settrace(before)


def cost_of_a_batch(num_streams: int, num_plans: int) -> float:
    """Operations for each batch of streams that have a lane each, with memory for three batches of each."""
    num_batches, num_taken = 8, 0
    window = Window(3 * num_streams * SIZE)
    for number in range(num_streams):
        window.attach(number, number % num_plans, range(number, number + num_batches * num_streams, num_streams))
        window.ask(number, 2)
    with counted() as found:
        for _ in range(num_batches // 2):
            for number in range(num_streams):
                while not window.may_take(number):
                    one_step(window)
                window.let_go(window.take(number))
                window.ask(number, 1)
                num_taken += 1
                one_step(window)
    return found["operations"] / num_taken


def one_step(window: Window) -> None:
    """What the producer's thread does, with a storage and decoders that need no time."""
    window.is_urgent()
    window.dropped(window.to_drop())
    start = window.to_start()
    if start is not None:
        window.dropped(start.drop)
        window.started(start.key)
        window.made(start.key, SIZE)
        return
    plan = window.to_plan()
    if plan is not None:
        window.planned(plan.key)
        window.ready(plan.key)


@pytest.mark.parametrize("num_plans", [1, 3])
def test_a_batch_costs_no_more_among_many_streams(num_plans: int) -> None:
    few, many = cost_of_a_batch(16, num_plans), cost_of_a_batch(256, num_plans)
    assert many < 2 * few


# -- by example -------------------------------------------------------------------------------------------------------


def test_what_was_asked_for_first_is_planned_first() -> None:
    window = Window(FOREVER)
    window.attach(1, 0, range(0, 8, 2))
    window.attach(2, 0, range(1, 8, 2))
    window.ask(2, 1)
    window.ask(1, 1)
    assert window.to_plan() == ToPlan((0, 1), 2, is_due=True)
    window.planned((0, 1))
    assert window.to_plan() == ToPlan((0, 0), 1, is_due=True)


def test_nothing_is_done_for_who_has_never_asked() -> None:
    window = Window(FOREVER)
    window.attach(1, 0, range(8))
    assert window.to_plan() is None
    window.ask(1, 0)
    assert window.to_plan() is None


def test_made_ahead_is_what_has_fewest_ahead() -> None:
    window = Window(FOREVER)
    for number, plan in ((1, 0), (2, 1)):
        window.attach(number, plan, range(9))
        window.ask(number, 1)
    planned = []
    for _ in range(6):
        found = window.to_plan()
        assert found is not None
        window.planned(found.key)
        planned.append(found.key)
    assert planned == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]


def test_the_dropped_batch_is_the_one_whose_next_use_is_farthest() -> None:
    machine = Machine(3 * SIZE)
    machine.attach(1, range(9))
    machine.ask(1)
    machine.run(random.Random(0), [])
    assert machine.kept == {(0, 0), (0, 1), (0, 2)}
    machine.attach(2, range(20, 29))
    machine.ask(2)
    machine.run(random.Random(0), [])
    assert machine.kept == {(0, 0), (0, 1), (0, 20)}


def test_a_budget_that_shrinks_drops_all_but_what_is_next() -> None:
    machine = Machine(FOREVER)
    machine.attach(1, range(9))
    machine.ask(1)
    machine.run(random.Random(0), [])
    assert len(machine.kept) == 9
    machine.window.memory_bytes = 0
    machine.settle()
    assert machine.kept == {(0, 0)}


def test_so_many_are_planned_ahead_at_most() -> None:
    machine = Machine(FOREVER)
    machine.attach(1, range(1000))
    machine.ask(1)
    assert len(machine.reading) == MAX_PLANNED
    machine.run(random.Random(0), [])
    assert len(machine.kept) == MAX_AHEAD


def test_few_are_in_the_making_that_nobody_asked_for() -> None:
    machine = Machine(FOREVER)
    machine.attach(1, range(100))
    machine.ask(1)
    machine.read((0, 0))
    machine.make((0, 0))
    while machine.reading:
        machine.read(machine.reading[0])
    assert len(machine.making) == 2


def test_what_one_leaves_behind_is_there_for_who_opens_it_again() -> None:
    machine = Machine(FOREVER)
    machine.attach(1, range(4))
    machine.ask(1, 4)
    for key in list(machine.reading):
        machine.read(key)
    machine.make((0, 0))
    assert machine.making
    machine.detach(1)
    machine.attach(2, range(1, 4))
    machine.ask(2, 3)
    machine.run(random.Random(0), [2])
    assert machine.got[2] == [1, 2, 3]
    assert max(machine.starts.values()) == 1


def test_a_batch_made_for_nobody_is_forgotten() -> None:
    window = Window(FOREVER)
    window.attach(1, 0, range(2))
    window.ask(1, 1)
    window.planned((0, 0))
    window.ready((0, 0))
    assert window.to_start() == ToStart((0, 0), ())
    window.started((0, 0))
    assert window.detach(1) == []
    assert window.made((0, 0), SIZE) == [(0, 0)]
    assert window.stage((0, 0)) is None


def test_credit_beyond_the_end_is_not_counted() -> None:
    window = Window(FOREVER)
    window.attach(1, 0, range(2))
    window.ask(1, 2**31)
    assert window.num_asked(1) == 2


def test_a_batch_that_came_to_nothing_is_taken_too() -> None:
    """One whose making failed has no bytes."""
    machine = Machine(0)
    machine.attach(1, range(2))
    machine.ask(1, 2)
    machine.read((0, 0))
    machine.make((0, 0), num_bytes=0)
    machine.take(1)
    assert machine.window.stage((0, 0)) is Stage.MADE
    machine.let_go()
    assert machine.window.stage((0, 0)) is None


def test_taking_what_is_not_there_is_our_own_mistake() -> None:
    window = Window(FOREVER)
    window.attach(1, 0, range(2))
    with pytest.raises((AssertionError, KeyError)):
        window.take(1)
