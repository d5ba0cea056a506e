"""The figures of storage: that they are measured, how the page shows them; the mechanism that is compared with."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from stoker_bench import rounds
from stoker_bench.datasets import PhotoShards, make
from stoker_bench.storage import cold, fleet, lookahead, steady, sweep
from stoker_bench.storage.deli import Deli, Fifo, Setting
from stoker_bench.storage.run import PARTS, Options, markdown, run

TINY = Options(
    cold.Options(num_rounds=1, num_passes=1),
    lookahead.Options(num_objects=48, object_bytes=100, batch_size=8, step_s=0.0, num_rounds=1),
    sweep.Options(levels=(1, 4), object_bytes=1000, num_objects=4, min_reads=2, num_rounds=1),
    fleet.Options(num_workers=2, num_epochs=2, num_rounds=1),
    steady.Options(step_s=0.005, warm_up_steps=2, num_steps=4, num_rounds=1),
)


@pytest.fixture(autouse=True)
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookahead, "PROFILE", "gcs,latency_ms=1,tail_ms=0")
    monkeypatch.setattr(sweep, "PROFILE", "s3-far,latency_ms=1,tail=0,tail_ms=0")
    monkeypatch.setattr(steady, "PROFILE", "gcs,latency_ms=1,tail_ms=0")


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_measured_and_shown(part: str, tmp_path: Path) -> None:
    made = make(PhotoShards(num_shards=2, rows_per_shard=64), tmp_path / "shards")
    asked = Options(TINY.cold, TINY.lookahead, TINY.sweep, TINY.fleet, TINY.steady, (part,))
    said: list[str] = []
    report = run(made, asked, said.append, settle=lambda: None)  # other tests run beside this one
    assert set(report) == {part}
    shown = markdown(report)
    expected = {
        "cold": "| storage layer |",
        "lookahead": "| f=16 c=32 t=16 |",
        "sweep": "| 4 |",
        "fleet": "Fleet cache, 2 workers",
        "steady": "| disk |",
    }
    assert expected[part] in shown
    assert said


def test_a_fleet_reads_the_bucket_at_least_once_and_not_in_every_epoch(tmp_path: Path) -> None:
    """That it is exactly once where no worker is held up shows tests/cluster/test_fleet_cache.py."""
    made = make(PhotoShards(num_shards=2, rows_per_shard=64), tmp_path / "shards")
    (multiple,) = fleet.run(made, TINY.fleet, lambda _: None)["multiples"]
    assert 1.0 <= multiple <= TINY.fleet.num_epochs


def test_figures_come_from_rounds_in_turn() -> None:
    turns = itertools.count(1)
    ways = {name: lambda: float(next(turns)) for name in ("a", "b")}
    assert rounds.of(ways, 2, lambda: None, lambda *_: None) == {"a": [1.0, 4.0], "b": [2.0, 3.0]}


def test_the_oldest_goes_first() -> None:
    cache = Fifo(2)
    cache.put([(1, b"a"), (2, b"b"), (3, b"c")])
    assert [cache.get(index) for index in (1, 2, 3)] == [None, b"b", b"c"]


def test_without_prefetch_a_cache_has_what_was_read_before() -> None:
    deli = Deli(lambda index: bytes([index]), Setting(0, 0, 100), 2)
    assert list(deli.epoch([1, 2, 3, 4], 3)) == [[b"\1", b"\2", b"\3"], [b"\4"]]
    assert list(deli.epoch([3, 4, 5], 3)) == [[b"\3", b"\4", b"\5"]]
    assert (deli.num_reads, deli.num_misses) == (7, 5)
    deli.close()


def test_with_prefetch_every_object_comes_whoever_read_it() -> None:
    deli = Deli(lambda index: bytes([index]), Setting(4, 2, 8), 2)
    order = list(range(30))
    assert [body for batch in deli.epoch(order, 4) for body in batch] == [bytes([index]) for index in order]
    assert deli.num_reads == 30
    deli.close()
