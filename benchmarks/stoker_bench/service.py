"""``make bench``, the service: beside local mode, beside a bare socket, and after a worker was killed."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from stoker_bench import datasets, machine, rounds, service_data, service_gap, service_rates, service_ready
from stoker_bench import service_stream as stream
from stoker_bench.datasets import MadeShards, PhotoShards
from stoker_bench.rounds import Spread
from stoker_bench.service_gap import Gap, Setting

PARTS = ("rates", "stream", "gap")


@dataclass(frozen=True, slots=True)
class Options:
    """How long and on what is measured."""

    num_rounds: int = 7
    num_batches: int = 32  # of which several may come at once: twice as many as for contenders without lanes
    num_ready_batches: int = 64
    batch_size: int = 256
    num_repeats: int = 8
    gap: Setting = field(default_factory=Setting)
    parts: tuple[str, ...] = PARTS


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the service alone, print, and write ``bench-service.json`` and ``bench-service.md``."""
    usual = Options()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--rounds", type=int, default=usual.num_rounds)
    parser.add_argument("--batches", type=int, default=usual.num_batches, help="batches a contender and round")
    parser.add_argument("--ready-batches", type=int, default=usual.num_ready_batches, help="… of those that are ready")
    parser.add_argument("--batch-size", type=int, default=usual.batch_size)
    parser.add_argument("--kills", type=int, default=usual.gap.num_kills)
    parser.add_argument("--watch", type=float, default=usual.gap.watch_s, help="seconds before and after a kill")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--rows-per-shard", type=int, default=256)
    parser.add_argument("--part", action="append", choices=PARTS, help="measure only this; may be given several times")
    asked = parser.parse_args(arguments)
    options = Options(
        asked.rounds,
        asked.batches,
        asked.ready_batches,
        asked.batch_size,
        gap=replace(usual.gap, num_kills=asked.kills, watch_s=asked.watch),
        parts=tuple(asked.part or PARTS),
    )
    folder = Path(tempfile.gettempdir()) / f"stoker-bench-{asked.shards}x{asked.rows_per_shard}"
    made = datasets.make(PhotoShards(asked.shards, asked.rows_per_shard), folder)
    report = {"machine": machine.describe(), **run(made, options, _say)}
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "bench-service.json").write_text(json.dumps(report, indent=1) + "\n")
    (asked.out / "bench-service.md").write_text(markdown(report))
    sys.stdout.write("\n" + markdown(report))
    return 0


def run(made: MadeShards, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    """Return all figures as JSON values."""
    pattern = service_data.repeated(made, options.num_repeats)
    measured: dict[str, Callable[[], dict[str, Any]]] = {
        "rates": lambda: _rates(pattern, options, say),
        "stream": lambda: _stream(pattern, options, say),
        "gap": lambda: _gaps(pattern, options, say),
    }
    return {"options": asdict(options), **{part: measured[part]() for part in PARTS if part in options.parts}}


def markdown(report: dict[str, Any]) -> str:
    """Return the figures as a part of a Markdown page."""
    parts = {"rates": _rates_shown, "stream": _stream_shown, "gap": _gaps_shown}
    shown = [parts[part](report[part], report["options"]) for part in PARTS if part in report]
    return "\n".join(["## The service", "", *(line for lines in shown for line in [*lines, ""])])


# -- images per second -------------------------------------------------------------------------------------------------


def _rates(pattern: str, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    found = service_rates.measure(
        pattern,
        options.batch_size,
        options.num_rounds,
        options.num_batches,
        lambda index, name, rate: say(f"round {index + 1}: {name}: {rate:,.0f} images/s"),
    )
    return {
        "rounds": found,
        "images_per_s": {name: asdict(Spread.of(rates)) for name, rates in found.items()},
        "ratios": {name: asdict(spread) for name, spread in rounds.against(found, service_rates.LOCAL).items()},
        "targets": service_rates.TARGETS,
    }


def _rates_shown(rates: dict[str, Any], options: dict[str, Any]) -> list[str]:
    how = f"{options['num_rounds']} rounds of {options['num_batches']} batches of {options['batch_size']}"
    lines = [
        f"On the same cores, {how}; median (smallest–largest).",
        "",
        "| | images/s | of local mode | to reach |",
        "|---|---|---|---|",
    ]
    for name, speed in rates["images_per_s"].items():
        ratio = rates["ratios"].get(name)
        shown = f"**{spread(ratio, 2)}**" if ratio else ""
        target = rates["targets"].get(name, "")
        lines.append(f"| {service_rates.TITLES[name]} | {spread(speed, 0)} | {shown} | {target} |")
    return lines


# -- one stream of ready batches ---------------------------------------------------------------------------------------


def _stream(pattern: str, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    with service_ready.links(pattern, options.batch_size) as links:
        found = stream.measure(
            links,
            options.num_rounds,
            options.num_ready_batches,
            lambda index, name, got: say(
                f"round {index + 1}: {name}: {got.gb_per_s:.2f} GB/s, {got.cpu_s_per_gb:.2f} CPU s per GB"
            ),
        )
    return stream.summary(found)


def _stream_shown(found: dict[str, Any], options: dict[str, Any]) -> list[str]:
    lines = [
        f"One stream of batches that are ready, {options['num_ready_batches']} in each round.",
        "",
        "| | GB/s | of the socket | client's CPU, s per GB |",
        "|---|---|---|---|",
    ]
    for name, figures in found["links"].items():
        ratio = found["ratios"].get(name)
        shown = f"**{spread(ratio, 2)}**" if ratio else ""
        speed, cost = spread(figures["gb_per_s"], 2), spread(figures["cpu_s_per_gb"], 2)
        lines.append(f"| {stream.TITLES[name]} | {speed} | {shown} | {cost} |")
    targets = found["targets"]
    lines += ["", f"Over Flight, {targets['ratio']} or more and {targets['cpu_s_per_gb']} or less are the aims."]
    return lines


# -- the gap after a kill ----------------------------------------------------------------------------------------------


def _gaps(pattern: str, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    gaps = service_gap.measure(
        pattern,
        options.gap,
        lambda index, gap: say(f"kill {index + 1}: longest wait {gap.after_s:.2f} s, before it {gap.before_s:.2f} s"),
    )
    return summary_of_gaps(gaps)


def summary_of_gaps(gaps: Sequence[Gap]) -> dict[str, Any]:
    """Return the waits before and after the kills as JSON values."""
    return {
        "kills": [asdict(gap) for gap in gaps],
        "before_s": asdict(Spread.of([gap.before_s for gap in gaps])),
        "after_s": asdict(Spread.of([gap.after_s for gap in gaps])),
        "beat_s": service_gap.BEAT_S,
        "target_s": service_gap.TARGET_S,
    }


def _gaps_shown(gap: dict[str, Any], options: dict[str, Any]) -> list[str]:
    how = f"{len(gap['kills'])} times, batches of {options['gap']['batch_size']}, a beat of {gap['beat_s']} s"
    waits = f"**{spread(gap['after_s'], 2)} s**, {spread(gap['before_s'], 2)} s before it"
    aim = f"at most {gap['target_s']:g} s is the aim"
    return [
        f"kill -9 of one of {service_gap.NUM_WORKERS} workers ({how}): the longest wait for a batch is {waits}; {aim}."
    ]


def spread(found: dict[str, float], digits: int) -> str:
    """Show a median with the smallest and the largest value."""
    return f"{found['median']:,.{digits}f} ({found['low']:,.{digits}f}–{found['high']:,.{digits}f})"


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
