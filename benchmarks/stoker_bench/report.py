"""Shows measured rates: as JSON for programs, as a table for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from stoker_bench import machine
from stoker_bench.rates import Rate, Scenario

SCHEMA_VERSION = 1


def to_json(scenario: Scenario, rates: Sequence[Rate]) -> dict[str, Any]:
    """Return the report of ``stoker bench --json``; numbers that were not measured are null."""
    return {
        "schema": SCHEMA_VERSION,
        "machine": machine.describe(),
        "scenario": _shown(scenario),
        "rates": {rate.name: _finite(_rate(rate)) for rate in rates},
    }


def to_table(rates: Sequence[Rate]) -> Table:
    """Return a table with a column per rate."""
    table = Table("", *(rate.name for rate in rates), box=None, header_style="bold")
    table.columns[0].style = "dim"
    for column in table.columns[1:]:
        column.justify = "right"
    shown = [_rate(rate) for rate in rates]
    for name, digits, scale, title in (
        ("samples_per_s", 0, 1, "samples/s"),
        ("read_mb_per_s", 1, 1, "MB/s read"),
        ("made_mb_per_s", 1, 1, "MB/s made"),
        ("wait_p50_s", 1, 1e3, "wait p50, ms"),
        ("wait_p95_s", 1, 1e3, "wait p95, ms"),
        ("wait_p99_s", 1, 1e3, "wait p99, ms"),
        ("time_to_first_batch_s", 2, 1, "first batch after, s"),
        ("cpu_s_per_1000_samples", 3, 1, "CPU s per 1,000 samples"),
        ("peak_memory_bytes", 0, 1e-6, "peak memory, MB"),
    ):
        table.add_row(title, *(f"{rate[name] * scale:,.{digits}f}" for rate in shown))
    return table


def _shown(scenario: Scenario) -> dict[str, Any]:
    shown = asdict(scenario)
    del shown["storage_options"]  # they may hold secrets
    return shown


def _rate(rate: Rate) -> dict[str, Any]:
    return {
        "batches": rate.drive.num_batches,
        "samples": rate.drive.num_samples,
        "samples_per_s": rate.drive.samples_per_s,
        "read_mb_per_s": rate.read_mb_per_s,
        "made_mb_per_s": rate.made_mb_per_s,
        "wait_p50_s": rate.drive.waits.p50_s,
        "wait_p95_s": rate.drive.waits.p95_s,
        "wait_p99_s": rate.drive.waits.p99_s,
        "time_to_first_batch_s": rate.drive.first_s,
        "cpu_s_per_1000_samples": rate.drive.cpu_s_per_1000_samples,
        "peak_memory_bytes": rate.peak_memory_bytes,
        "limited_by": rate.limited_by,
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }
