"""A seed is a schedule, and the seeds together try everything."""

from __future__ import annotations

from typing import get_args

from faults.schedule import DispatcherNetwork, Event, WorkerNetwork, draw
from support.proxy import Fault


def test_a_seed_always_draws_the_same() -> None:
    assert [draw(seed) for seed in range(50)] == [draw(seed) for seed in range(50)]
    assert len({draw(seed).events for seed in range(50)}) > 40


def test_the_seeds_draw_every_kind_of_event() -> None:
    events = [event for seed in range(200) for _, event in draw(seed).events]
    assert {type(event) for event in events} == set(get_args(Event))
    faults = {type(event.fault) for event in events if isinstance(event, WorkerNetwork | DispatcherNetwork)}
    assert faults == set(get_args(Fault))


def test_events_happen_while_there_are_steps() -> None:
    for seed in range(200):
        plan = draw(seed)
        steps = [step for step, _ in plan.events]
        assert steps == sorted(steps)
        assert 0 < steps[0] <= steps[-1] < plan.num_steps
