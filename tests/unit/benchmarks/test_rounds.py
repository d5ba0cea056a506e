"""Rounds are fair: every contender stands in every place, ratios are taken round by round."""

from __future__ import annotations

import dataclasses

from stoker_bench import rounds
from stoker_bench.contender import Stream
from stoker_bench.rounds import Spread


@dataclasses.dataclass
class Steady:
    name: str
    rates: list[float]
    title: str = ""
    num_calls: int = 0

    def images_per_s(self, num_batches: int) -> float:
        self.num_calls += 1
        return self.rates[self.num_calls - 1]


def test_each_contender_comes_first_and_last_in_some_round() -> None:
    orders = [rounds.rotated(["a", "b", "c", "d"], index) for index in range(4)]
    assert {order[0] for order in orders} == {order[-1] for order in orders} == {"a", "b", "c", "d"}
    assert rounds.rotated(["a", "b", "c", "d"], 4) == ["d", "c", "b", "a"]
    assert all(sorted(order) == ["a", "b", "c", "d"] for order in orders)


def test_ratios_are_medians_of_rounds_and_a_drift_of_the_machine_cancels() -> None:
    ours, theirs = Steady("ours", [200.0, 100.0, 50.0]), Steady("theirs", [100.0, 50.0, 20.0])
    told: list[tuple[int, str, float]] = []
    found = rounds.measure([ours, theirs], 3, 1, lambda *figure: told.append(figure), settle=lambda: None)
    assert found == {"ours": [200.0, 100.0, 50.0], "theirs": [100.0, 50.0, 20.0]}
    assert len(told) == 6
    assert rounds.ratios(found, "ours") == {"theirs": Spread(2.0, 2.0, 2.5)}


def test_a_stream_throws_away_what_was_queued_and_counts_images() -> None:
    taken = iter(range(1, 100))
    stream = Stream("x", "", taken, num_queued=3)
    assert stream.images_per_s(2) > 0
    assert next(taken) == 6
