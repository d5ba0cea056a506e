"""Samples are tried in a child process: what ends it, what does not, and how the trying ends."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import ops
from stoker.backends.options import AUTO_BACKEND
from stoker.backends.registry import compile_ops
from stoker.engine.killers import MAX_KILLERS, Killer, Killers
from stoker.engine.sandbox import Sandbox
from stoker.engine.vetting_child import Trial
from stoker.errors import ClosedError, SampleOrigin, WorkerError
from stoker.processes.channel import Channel
from stoker.processes.payload import pack
from support.crashes import Function, dying_of, hang, segfault
from support.process_programs import is_alive, noting_pids, pids_in, wait_until

LONG_S = 60.0


@contextmanager
def sandbox(
    *functions: Function, row_s: float = LONG_S
) -> Iterator[tuple[Sandbox, Callable[[int], str | None], Callable[[], None]]]:
    """A sandbox, what tries a sample of this label in it, and what begins the end."""
    pipeline = stoker.Pipeline(stoker.tar("nowhere.tar"), [ops.Label("cls"), *map(ops.Map, functions)], batch_size=1)
    closing, end_of_closing = Channel.pair()
    payload = pack(pipeline, "pipeline")
    uniforms = np.zeros(compile_ops(pipeline.ops).num_uniforms)
    tried = Sandbox(AUTO_BACKEND, payload, closing, row_s)

    def verdict(label: int) -> str | None:
        origin = SampleOrigin("nowhere.tar", label, str(label))
        return tried.verdict(Trial(origin, {"cls": str(label).encode()}, label, 0, uniforms))

    try:
        yield tried, verdict, end_of_closing.close
    finally:
        tried.close()
        closing.close()
        end_of_closing.close()
        payload.close()


def test_what_ends_its_process_is_told_and_nothing_else() -> None:
    def fail(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["cls"] == 2:
            raise ValueError("no")
        if sample["cls"] == 3:
            raise SystemExit(4)
        return sample

    with sandbox(dying_of({1}), fail) as (_, verdict, _):
        found = [verdict(label) for label in range(4)]
    assert found[1] is not None
    assert "2 times" in found[1]
    assert "SIGSEGV" in found[1]
    assert [found[0], *found[2:]] == [None, None, None]


def test_one_end_is_an_accident(tmp_path: Path) -> None:
    once = tmp_path / "once"

    def die_once(sample: dict[str, Any]) -> dict[str, Any]:
        if not once.exists():
            once.touch()
            segfault()
        return sample

    with sandbox(die_once) as (_, verdict, _):
        assert verdict(0) is None
    assert once.exists()


def test_a_sample_that_hangs_is_one_that_ends_its_process() -> None:
    with sandbox(dying_of({1}, hang), row_s=0.2) as (_, verdict, _):
        # the child's start has a deadline of its own
        assert verdict(1) == "making it ended its process 2 times: it took more than 0.2 s and was killed"


def test_it_ends_at_once_while_a_sample_hangs(tmp_path: Path) -> None:
    outcome: list[BaseException] = []
    with sandbox(noting_pids(tmp_path), dying_of({1}, hang)) as (tried, verdict, end):

        def run() -> None:
            try:
                verdict(1)
            except ClosedError as error:
                outcome.append(error)
            tried.close()

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: pids_in(tmp_path))
        begun_s = time.monotonic()
        end()
        thread.join(2.0)
        assert not thread.is_alive()
        assert time.monotonic() - begun_s < 2.0
    assert outcome
    assert not any(map(is_alive, pids_in(tmp_path)))


def test_an_idle_child_can_be_closed_and_comes_again(tmp_path: Path) -> None:
    with sandbox(noting_pids(tmp_path)) as (tried, verdict, _):
        assert verdict(0) is verdict(1) is None
        (first,) = pids_in(tmp_path)
        tried.close()
        assert not is_alive(first)
        assert verdict(2) is None
        assert len(pids_in(tmp_path)) == 2


def test_a_child_that_cannot_begin_is_no_samples_fault() -> None:
    class Unloadable:
        def __reduce__(self) -> tuple[Any, ...]:
            return os._exit, (3,)

    held = Unloadable()

    def use(sample: dict[str, Any]) -> dict[str, Any]:
        return sample | {"held": held}

    with (
        sandbox(use) as (_, verdict, _),
        pytest.raises(WorkerError, match="exited with code 3, before it was given one"),
    ):
        verdict(0)


def test_killers_are_told_once_and_are_bounded() -> None:
    killers = Killers()
    killers.add([Killer(5, "a"), Killer(3, "b"), Killer(5, "c")])
    assert killers.since(0) == (Killer(5, "a"), Killer(3, "b"))
    assert killers.since(1) == (Killer(3, "b"),)
    assert killers.among(np.array([1, 3, 5, 3])) == {1: Killer(3, "b"), 2: Killer(5, "a"), 3: Killer(3, "b")}
    killers.add(Killer(number, "") for number in range(10, 10 + MAX_KILLERS))
    assert len(killers) == MAX_KILLERS
    assert killers.get(10 + MAX_KILLERS) is None
