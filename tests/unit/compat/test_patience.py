"""How long a batch may take, and what is said meanwhile."""

from __future__ import annotations

import logging

import pytest

from stoker.compat import patience as module
from stoker.compat.patience import FIRST_WORD_S, IDLE_S, LONGEST_S, Patience
from stoker.errors import StallError, WorkerStallError


class Clock:
    """Stands in for the module's clock."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def run(clock: Clock, patience: Patience) -> float:
    """Wait as long as one is let; returns for how long."""
    begun_s = clock.now_s
    try:
        while True:
            wait_s = patience.next_s()
            assert wait_s > 0, "it never polls"
            clock.now_s += wait_s
    except WorkerStallError:
        return clock.now_s - begun_s


def test_a_timeout_is_the_deadline_whatever_the_worker_does(clock: Clock) -> None:
    patience = Patience(25.0, lambda: True, lambda: "worker 3 sleeps")
    assert run(clock, patience) == 25.0
    with pytest.raises(WorkerStallError, match=r"DataLoader timed out after 25.0 seconds; worker 3 sleeps"):
        patience.next_s()


def test_an_idle_worker_is_given_up_and_a_busy_one_later(clock: Clock) -> None:
    assert IDLE_S <= run(clock, Patience(0, lambda: False, lambda: "")) <= IDLE_S + FIRST_WORD_S
    assert LONGEST_S <= run(clock, Patience(0, lambda: True, lambda: "")) <= LONGEST_S + FIRST_WORD_S


def test_a_sign_of_life_begins_the_wait_anew(clock: Clock) -> None:
    begun_s = clock.now_s
    patience = Patience(0, lambda: clock.now_s - begun_s < 200, lambda: "")
    assert 200 - FIRST_WORD_S + IDLE_S <= run(clock, patience) <= 200 + IDLE_S + FIRST_WORD_S


def test_the_log_says_early_and_more_and_more_seldom_what_is_waited_for(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "stoker"):
        run(clock, Patience(0, lambda: False, lambda: "worker 3 sleeps"))
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "no batch for 10 s; worker 3 sleeps"
    assert [text.split()[3] for text in said] == ["10", "20", "40", "80", "160"]


def test_the_error_is_both_ours_and_what_torch_raises() -> None:
    assert issubclass(WorkerStallError, StallError)
    assert issubclass(WorkerStallError, RuntimeError)
