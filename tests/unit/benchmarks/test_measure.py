"""Waits, rates and memory are those of the batches that were taken."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from stoker_bench import measure
from stoker_bench.measure import Waits


def test_waits_are_percentiles_that_occurred() -> None:
    waits = Waits.of([0.001 * n for n in range(1, 101)])
    assert (round(waits.p50_s, 3), round(waits.p95_s, 3), round(waits.p99_s, 3)) == (0.051, 0.096, 0.1)
    assert math.isnan(Waits.of([]).p99_s)


def test_a_drive_counts_batches_and_samples() -> None:
    driven = measure.drive(lambda: iter([[0] * 5] * 10), 4, len)
    assert (driven.num_batches, driven.num_samples) == (4, 20)
    assert driven.samples_per_s > 0
    assert 0 <= driven.first_s <= driven.total_s


def test_a_drive_ends_with_its_batches() -> None:
    driven = measure.drive(lambda: iter([[0], [0]]), 100, len)
    assert (driven.num_batches, driven.num_samples) == (2, 2)
    assert math.isnan(measure.drive(lambda: iter([]), 100, len).samples_per_s)


def test_peak_memory_starts_anew() -> None:
    """In a process of its own: here, memory that was freed before may be taken again."""
    code = """
import mmap
from stoker_bench import measure
before = measure.peak_memory_bytes()
with mmap.mmap(-1, 128 << 20) as held:
    held.write(b"x" * (128 << 20))
high = measure.peak_memory_bytes()
print(measure.reset_peak_memory(), before, high, measure.peak_memory_bytes())
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    could_reset, *figures = shown.stdout.split()
    if could_reset == "False":
        pytest.skip("this kernel does not let a process reset its peak")
    before, high, after = map(int, figures)
    assert high > before + (100 << 20)
    assert after < high - (100 << 20)
