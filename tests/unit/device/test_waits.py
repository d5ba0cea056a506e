"""The trainer's part of what was waited for."""

from __future__ import annotations

import pytest

from stoker.device.waits import Waits

ALL = Waits(read=4.0, decode=3.0, network=2.0, device=1.0)


@pytest.mark.parametrize(
    "waited_s, expected",
    [
        (0.0, Waits()),
        (0.5, Waits(device=0.5)),
        (2.0, Waits(network=1.0, device=1.0)),
        (7.0, Waits(read=1.0, decode=3.0, network=2.0, device=1.0)),
        (10.5, Waits(read=4.0, decode=3.0, network=2.0, device=1.5)),
    ],
    ids=str,
)
def test_who_comes_late_waits_for_the_last_stages(waited_s: float, expected: Waits) -> None:
    assert ALL.last(waited_s) == expected


def test_sums_and_differences() -> None:
    assert ALL + ALL - ALL == ALL
    assert ALL.total == 10.0
    assert Waits.of_supply({"wait_read_s": 1, "wait_decode_s": 2, "start_s": 9}) == Waits(read=1.0, decode=2.0)


@pytest.mark.parametrize(
    "waits, between_s, expected",
    [
        (Waits(), 0.0, "unknown"),
        (Waits(read=0.1), 10.0, "trainer"),
        (Waits(read=2.0, decode=1.0), 10.0, "storage"),
        (Waits(decode=2.0, device=1.0), 0.0, "decode"),
        (Waits(network=2.0), 1.0, "network"),
        (Waits(device=2.0), 1.0, "device"),
    ],
    ids=str,
)
def test_the_verdict_names_the_largest_wait(waits: Waits, between_s: float, expected: str) -> None:
    assert waits.verdict(between_s, 3) == expected


def test_before_the_first_batch_nothing_is_known() -> None:
    assert ALL.verdict(1.0, 0) == "unknown"
