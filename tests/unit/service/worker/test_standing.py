"""When another worker is asked, and when it is left alone."""

from __future__ import annotations

from stoker_service.worker.standing import FIRST_PAUSE_S, GOOD, LONGEST_PAUSE_S


def test_one_that_never_failed_is_asked_at_any_time() -> None:
    assert GOOD.allows(0.0)
    assert GOOD.asked(5.0) == GOOD


def test_after_a_failure_it_is_left_alone_then_tried_by_one_call() -> None:
    failed = GOOD.failed(9.0, 10.0)
    assert not failed.allows(10.0 + FIRST_PAUSE_S / 2)
    assert failed.allows(10.0 + FIRST_PAUSE_S)
    tried = failed.asked(10.0 + FIRST_PAUSE_S)
    assert not tried.allows(10.0 + FIRST_PAUSE_S)


def test_calls_that_were_out_together_fail_once() -> None:
    failed = GOOD.failed(9.0, 10.0)
    assert failed.failed(9.5, 10.5) == failed


def test_each_trial_in_vain_makes_the_pause_longer_up_to_a_limit() -> None:
    standing, now_s, pauses = GOOD, 0.0, []
    for _ in range(12):
        standing = standing.failed(now_s, now_s + 0.1)
        pauses.append(standing.until_s - now_s - 0.1)
        now_s = standing.until_s
    assert [round(pause, 6) for pause in pauses[:4]] == [FIRST_PAUSE_S, 2.0, 4.0, 8.0]
    assert round(pauses[-1], 6) == LONGEST_PAUSE_S
