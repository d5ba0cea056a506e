"""``make bench``, storage: cold reads, lookahead, requests in flight, a fleet's caches, a trainer over a slow store."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker_bench import datasets, machine, quiet
from stoker_bench.datasets import MadeShards, PhotoShards
from stoker_bench.service import spread
from stoker_bench.storage import cold, fleet, lookahead, steady, sweep

PARTS = ("cold", "lookahead", "sweep", "fleet", "steady")


@dataclass(frozen=True, slots=True)
class Options:
    """What is measured, and how long."""

    cold: cold.Options = field(default_factory=cold.Options)
    lookahead: lookahead.Options = field(default_factory=lookahead.Options)
    sweep: sweep.Options = field(default_factory=sweep.Options)
    fleet: fleet.Options = field(default_factory=fleet.Options)
    steady: steady.Options = field(default_factory=steady.Options)
    parts: tuple[str, ...] = PARTS


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure this part alone, print, and write ``bench-storage.json`` and ``bench-storage.md``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--part", action="append", choices=PARTS, help="measure only this; may be given several times")
    asked = parser.parse_args(arguments)
    made = datasets.make(PhotoShards(8, 256), Path(tempfile.gettempdir()) / "stoker-bench-8x256")
    report = {"machine": machine.describe(), **run(made, Options(parts=tuple(asked.part or PARTS)), _say)}
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "bench-storage.json").write_text(json.dumps(report, indent=1) + "\n")
    (asked.out / "bench-storage.md").write_text(markdown(report))
    sys.stdout.write("\n" + markdown(report))
    return 0


def run(
    made: MadeShards, options: Options, say: Callable[[str], None], settle: Callable[[], None] = quiet.wait
) -> dict[str, Any]:
    """Return all figures as JSON values. ``settle`` returns when the machine is idle."""
    scratch = made.folder.with_name(f"{made.folder.name}-storage")
    measured: dict[str, Callable[[], Any]] = {
        "cold": lambda: cold.run(made, options.cold, say, settle),
        "lookahead": lambda: lookahead.run(scratch, options.lookahead, say, settle),
        "sweep": lambda: sweep.run(scratch, options.sweep, say, settle),
        "fleet": lambda: fleet.run(made, options.fleet, say),
        "steady": lambda: steady.run(made, options.steady, say, settle),
    }
    return {part: measured[part]() for part in PARTS if part in options.parts}


def markdown(report: dict[str, Any]) -> str:
    """Return the figures as a Markdown page."""
    pages: dict[str, Callable[[dict[str, Any]], list[str]]] = {
        "cold": _cold,
        "lookahead": _lookahead,
        "sweep": _sweep,
        "fleet": _fleet,
        "steady": _steady,
    }
    lines = [line for part, page in pages.items() if part in report for line in ["", *page(report[part])]]
    return "\n".join(["## Storage", *lines]) + "\n"


def _cold(found: dict[str, Any]) -> list[str]:
    return [
        f"Cold read of shards from {found['server']}, {found['in_flight']} requests in flight:",
        "",
        "| | MB/s | over obstore alone | to reach |",
        "|---|---|---|---|",
        *(_rate(name, rates, found) for name, rates in found["mb_per_s"].items()),
    ]


def _rate(name: str, rates: dict[str, float], found: dict[str, Any]) -> str:
    ratio = found["ratios"].get(name)
    shown = f"**{spread(ratio, 2)}** | {found['target']}" if ratio else "|"
    return f"| {name} | {spread(rates, 0)} | {shown} |"


def _lookahead(found: dict[str, Any]) -> list[str]:
    less = [
        f"{name} by {spread(_scaled(found['less'][name], 100), 1)} %, to reach {100 * target:.0f} %"
        for name, target in found["targets"].items()
    ]
    return [
        f"Small objects, {found['server']}: seconds waited in an epoch (f fetched at once, c held, t left).",
        "",
        "| | first epoch | second | misses |",
        "|---|---|---|---|",
        *(_waits(name, waits, found["misses"][name]) for name, waits in found["waits_s"].items()),
        "",
        f"Stoker waits less than: {'; '.join(less)}.",
    ]


def _waits(name: str, waits: list[dict[str, float]], miss_rate: float) -> str:
    first, second = [*(spread(wait, 2) for wait in waits), ""][:2]
    return f"| {name} | {first} | {second} | {miss_rate:.2f} |"


def _sweep(found: dict[str, Any]) -> list[str]:
    return [
        f"Objects of {found['object_bytes'] / 1e3:.0f} KB, {found['server']}:",
        "",
        "| in flight | MB/s | p50, s | p95 | p99 |",
        "|---|---|---|---|---|",
        *(
            f"| {row['in_flight']} | {row['mb_per_s']:.1f} ({row['low']:.1f}–{row['high']:.1f}) | {row['p50_s']:.3f} | "
            f"{row['p95_s']:.3f} | {row['p99_s']:.3f} |"
            for row in found["levels"]
        ),
    ]


def _fleet(found: dict[str, Any]) -> list[str]:
    multiples = ", ".join(f"{multiple:.3f}" for multiple in found["multiples"])
    what = f"Fleet cache, {found['num_workers']} workers: bytes from the bucket in {found['num_epochs']} epochs"
    return [f"{what}, as multiples of the data set: **{multiples}**, to reach {found['target']:.1f}."]


def _steady(found: dict[str, Any]) -> list[str]:
    where = f"Steps of 50 ms at 0.8 of capacity ({found['capacity']:,.0f} images/s)"
    to_reach = f"to reach {100 * found['wait_target']:.0f} % in all, and {1000 * found['p99_target_s']:.0f} ms"
    return [
        f"{where}, {found['server']}, and from the local disk; {to_reach}:",
        "",
        "| | waited, % of the time | … for chunks to be read | 99 of 100 steps at most, ms |",
        "|---|---|---|---|",
        *(_waited(name, waited) for name, waited in found["waited"].items()),
    ]


def _waited(name: str, waited: dict[str, dict[str, float]]) -> str:
    share, of_storage = (spread(_scaled(waited[part], 100), 2) for part in ("share", "of_storage"))
    return f"| {name} | **{share}** | {of_storage} | **{spread(_scaled(waited['p99_s'], 1000), 1)}** |"


def _scaled(found: dict[str, float], factor: float) -> dict[str, float]:
    return {name: factor * value for name, value in found.items()}


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
