"""The messages between a crew and its workers."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from stoker.compat import wire
from stoker.compat.crew import Job, Task
from stoker.compat.wire import Begin, Cargo, Kind


def _joined(parts: wire.Parts) -> memoryview:
    return memoryview(bytearray(b"".join(parts)))


def _job() -> Job:
    return Job([1, 2], sum, None, False, True, False, 2**63 - 1, "sample", 3, states=({"a": 1}, None))


def test_a_beginning_comes_without_cargo_and_gets_it_again() -> None:
    job = _job()
    body = _joined(wire.begin_message(Begin(3, 1, job, {"at": 5}, has_cargo=True)))
    assert wire.kind_of(body) is Kind.BEGIN
    begin = wire.begin_of(body)
    assert (begin.run, begin.worker_index, begin.has_cargo) == (3, 1, True)
    assert pickle.loads(begin.state) == {"at": 5}
    assert begin.job.dataset is None
    assert begin.job.states == ()
    whole = wire.with_cargo(begin.job, wire.cargo_of(job))
    assert wire.cargo_of(whole) == Cargo([1, 2], sum, None)
    assert (whole.base_seed, whole.seeding, whole.num_workers) == (2**63 - 1, "sample", 3)
    with pytest.raises(AssertionError, match="cargo"):
        begin.job.collate_fn([1])


@pytest.mark.parametrize(
    "keys", [[1, 2, 3], [], None, "x", [None] * 3, [("a", 1)], np.int64(3), [np.int64(3)], {"a": [1]}]
)
def test_tasks_come_as_they_were(keys: Any) -> None:
    body = _joined(wire.task_message(2**31, Task(2**40, keys), [4096, 0]))
    assert wire.kind_of(body) is Kind.TASK
    order = wire.order_of(body)
    assert order.run == 2**31
    assert order.task == Task(2**40, keys)
    assert order.released == [4096, 0]


def test_keys_of_a_class_that_is_not_elsewhere_come_by_value() -> None:
    class Key(int):
        pass

    assert wire.order_of(_joined(wire.task_message(1, Task(1, [Key(3)]), ()))).task.keys == [3]


def test_releases_come_as_they_were() -> None:
    body = _joined(wire.release_message([1, 2]))
    assert wire.kind_of(body) is Kind.RELEASE
    assert wire.released_of(body) == [1, 2]


def test_a_greeting_is_one_byte() -> None:
    assert wire.kind_of(_joined(wire.hello_message())) is Kind.HELLO


@pytest.mark.parametrize("kind", [Kind.MADE, Kind.FAILED, Kind.ENDED])
@pytest.mark.parametrize("state", [b"", pickle.dumps(5)])
@pytest.mark.parametrize("asked", [False, True])
def test_answers_come_as_they_were(kind: Kind, state: bytes, asked: bool) -> None:
    numbers = np.arange(6, dtype=np.float64).reshape(2, 3)
    value: wire.Parts = [b"abc", numbers.data, b""]
    body = _joined(wire.answer_message(kind, 2**31, 2**40, value, asked=asked, state=state))
    assert wire.kind_of(body) is kind
    answer = wire.answer_of(body)
    assert answer[:4] == (kind, 2**31, 2**40, asked)
    assert answer.value == b"abc" + numbers.tobytes()
    assert answer.state == state
    assert not answer.value.readonly


def test_a_value_begins_where_arrays_may_begin() -> None:
    body = _joined(wire.answer_message(Kind.MADE, 1, 1, [b"x"], asked=False))
    assert (len(body) - 1) % 32 == 0
