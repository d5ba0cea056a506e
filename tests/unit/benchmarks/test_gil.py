"""The GIL is found and its use measured right on loads that are known."""

from __future__ import annotations

import time
import zlib

from stoker_bench import gil


def test_a_python_loop_holds_the_lock_all_the_time_and_sleep_never() -> None:
    shares = gil.known_loads(seconds=0.3)
    assert shares["busy_loop_share"] > 0.99
    assert shares["sleep_share"] < 0.02


def test_a_call_that_releases_the_lock_is_told_from_one_that_does_not() -> None:
    payload = bytes(range(256)) * 4096
    with gil.watch() as released:
        end = time.perf_counter() + 0.3
        while time.perf_counter() < end:
            zlib.crc32(payload)
    with gil.watch() as held:
        end = time.perf_counter() + 0.3
        while time.perf_counter() < end:
            payload.count(b"x")
    assert released.held_share < 0.2
    assert held.held_share > 0.8


def test_the_cost_of_a_sample_is_the_held_time_over_the_samples() -> None:
    def batches() -> object:
        while True:
            end = time.perf_counter() + 0.01
            while time.perf_counter() < end:
                pass
            yield 10

    cost = gil.per_sample(batches(), num_queued=1, num_batches=20)  # type: ignore[arg-type]  # a generator of ints
    assert cost.held_share > 0.95
    assert 900 < cost.per_sample_us < 2000  # 10 ms of pure Python for 10 samples, on a machine that may be busy
