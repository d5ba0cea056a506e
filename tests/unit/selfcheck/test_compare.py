"""What counts as a difference, and when it is beyond a limit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker.backends.tolerances import Limit
from stoker.errors import SampleError
from stoker.selfcheck.compare import Difference, Finding, Outcome, difference, judge

GREY = np.full((9, 7, 3), 100, np.uint8)
BAD = SampleError("no end")


def changed(*places: tuple[int, int], by: int = 4) -> NDArray[np.uint8]:
    made = GREY.copy()
    for place in places:
        made[place] += by
    return made


def judged(expected: Outcome, found: Outcome, limit: Limit) -> Finding:
    return judge("chain", "ours", "theirs", limit, {"a": expected, "b": GREY}, {"a": found, "b": GREY})


def test_the_border_counts_apart_where_a_limit_has_one() -> None:
    found = changed((1, 3), by=9)
    assert difference(found, GREY, Limit(1, 1)).max == 9
    assert difference(found, GREY, Limit(1, 1, 10)) == Difference(9 / 63, 0.0, 9.0)
    assert difference(changed((2, 2)), GREY, Limit(1, 1, 10)) == Difference(4 / 63, 4.0, 4.0)


def test_bytes_do_not_wrap_round() -> None:
    dark, light = np.zeros((5, 5, 3), np.uint8), np.full((5, 5, 3), 255, np.uint8)
    assert difference(dark, light, Limit()) == Difference(255.0, 255.0, 0.0)


def test_a_picture_of_nothing_but_border() -> None:
    assert difference(np.ones((1, 1, 3)), np.zeros((1, 1, 3)), Limit(1, 0, 2)) == Difference(1.0, 0.0, 1.0)


@pytest.mark.parametrize(
    "limit, problem",
    [
        (Limit(1, 4), None),
        (Limit(1, 3), "max 4; allowed: mean 1, max 3"),
        (Limit(0.01, 4), "mean 0.0635, max 4; allowed: mean 0.01, max 4"),
        (Limit(1, 4, 3), "mean 0.0635, max 4, border 4; allowed: mean 1, max 4, border 3"),
        (Limit(), "mean 0.0635, max 4; allowed: 0"),
    ],
    ids=["within", "max", "mean", "border", "exact"],
)
def test_beyond_a_limit(limit: Limit, problem: str | None) -> None:
    finding = judged(GREY, changed((4, 3)), limit)
    assert finding.is_good == (problem is None)
    assert (finding.worst, finding.num_pictures, finding.max) == ("a", 2, 4.0)
    if problem is not None:
        assert len(finding.problems) == 1
        assert finding.problems[0].startswith("a: ")
        assert problem in finding.problems[0]


@pytest.mark.parametrize(
    "expected, found, words",
    [
        (GREY, BAD, "good, but refused here: no end"),
        (BAD, GREY, "bad (no end), but was made here"),
        (GREY, GREY[:5], "uint8 (5, 7, 3); expected uint8 (9, 7, 3)"),
        (GREY, GREY.astype(np.float32), "float32 (9, 7, 3); expected uint8 (9, 7, 3)"),
    ],
    ids=["refused", "made", "shape", "dtype"],
)
def test_another_kind_is_a_problem_within_any_limit(expected: Outcome, found: Outcome, words: str) -> None:
    assert judged(expected, found, Limit(math.inf, math.inf)).problems == (f"a: {words}",)


def test_two_refusals_are_one_verdict() -> None:
    finding = judged(BAD, SampleError("in other words"), Limit())
    assert finding.is_good
    assert finding.worst == ""
