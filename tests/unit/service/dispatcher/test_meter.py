"""Running sums of a peer become rates of late."""

from __future__ import annotations

from stoker_service.dispatcher.meter import Meter


def test_nothing_is_known_before_two_readings() -> None:
    meter = Meter(5.0)
    assert meter.change() is None
    meter.add((10.0, 100.0))
    assert meter.change() is None


def test_the_change_is_that_of_the_last_one_to_two_spans() -> None:
    meter = Meter(5.0)
    spans = []
    for second in range(100):
        meter.add((float(second), 3.0 * second))
        change = meter.change()
        if change is not None:
            assert change[1] == 3.0 * change[0]
            spans.append(change[0])
    assert set(spans[12:]) == {5.0, 6.0, 7.0, 8.0, 9.0}


def test_a_peer_that_counts_anew_begins_anew() -> None:
    meter = Meter(5.0)
    for second in range(20):
        meter.add((float(second), 100.0 * second))
    meter.add((20.0, 1.0))
    assert meter.change() is None
    meter.add((21.0, 4.0))
    assert meter.change() == (1.0, 3.0)
