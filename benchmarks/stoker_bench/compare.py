"""``make bench``: our images per second beside those of other ways to load the same shards, in one run."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stoker_bench import compat, datasets, gil, machine, rounds, service
from stoker_bench.contender import Contender, Stream
from stoker_bench.datasets import MadeShards, PhotoShards
from stoker_bench.rounds import Spread
from stoker_bench.storage import run as storage

OURS = "stoker"
TARGETS = {"torch-pillow": 2.5, "torch-tensor": 1.5, "bare-loop": 0.92}
GIL_TARGET_US = 40.0
WARM_UP_BATCHES = 4


@dataclass(frozen=True, slots=True)
class Options:
    """How long and on what is measured."""

    num_rounds: int = 7
    num_batches: int = 16
    batch_size: int = 256
    num_workers: int = 2
    prefetch_factors: tuple[int, ...] = (2, 4)
    num_shards: int = 8
    rows_per_shard: int = 256


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write ``bench.json`` and ``bench.md``."""
    usual = Options()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--rounds", type=int, default=usual.num_rounds)
    parser.add_argument("--batches", type=int, default=usual.num_batches, help="batches a contender and round")
    parser.add_argument("--batch-size", type=int, default=usual.batch_size)
    parser.add_argument("--rows-per-shard", type=int, default=usual.rows_per_shard)
    asked = parser.parse_args(arguments)
    options = Options(asked.rounds, asked.batches, asked.batch_size, rows_per_shard=asked.rows_per_shard)
    made = _data(options)
    _say(f"{made.num_rows} pictures, {made.size_bytes / made.num_rows / 1e3:.0f} KB on average, in {made.folder}")
    report = run(made, options)
    of_service = service.Options(asked.rounds, 2 * asked.batches, batch_size=asked.batch_size)
    report["service"] = service.run(made, of_service, _say)
    report["compat"] = compat.run(made, compat.Options(asked.rounds, batch_size=asked.batch_size), _say)
    report["storage"] = storage.run(made, storage.Options(), _say)
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "bench.json").write_text(json.dumps(report, indent=1) + "\n")
    (asked.out / "bench.md").write_text(markdown(report))
    sys.stdout.write("\n" + markdown(report) + f"\nwritten: {asked.out / 'bench.json'}, {asked.out / 'bench.md'}\n")
    return 0


def run(made: MadeShards, options: Options) -> dict[str, Any]:
    """Return all figures of one comparison as JSON values."""
    from stoker_bench.peers import ours

    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(contextlib.closing(ours.Ours(made.pattern, options.batch_size)))
        contenders: list[Contender] = [Stream(OURS, "Stoker, local mode", stream.batches(), stream.num_queued)]
        contenders += _peers(made, options, stack)
        for contender in contenders:
            _say(f"warm-up: {contender.name}: {contender.images_per_s(WARM_UP_BATCHES):,.0f} images/s")
        found = rounds.measure(contenders, options.num_rounds, options.num_batches, _tell_round)
        gil_cost = gil.per_sample(stream.batches(), stream.num_queued, 2 * options.num_batches)
    return {
        "machine": machine.describe(),
        "options": asdict(options),
        "pictures": {"rows": made.num_rows, "mean_bytes": made.size_bytes / made.num_rows},
        "titles": {contender.name: contender.title for contender in contenders},
        "rounds": found,
        "images_per_s": {name: asdict(Spread.of(rates)) for name, rates in found.items()},
        "ratios": {name: asdict(spread) for name, spread in rounds.ratios(found, OURS).items()},
        "targets": TARGETS,
        "gil": {**asdict(gil_cost), **gil.known_loads(), "target_us": GIL_TARGET_US},
    }


def markdown(report: dict[str, Any]) -> str:
    """Return the figures as a Markdown page."""
    found, options, cost = report["machine"], report["options"], report["gil"]
    where = f"{found['processor']}, {found['cores']} cores, Python {found['python']}."
    how = f"{options['num_rounds']} rounds of {options['num_batches']} batches of {options['batch_size']}"
    aim = f"{cost['per_sample_us']:.1f} ± {cost['error_us']:.1f} µs; at most {cost['target_us']:.0f} is the aim."
    known = (
        f"{100 * cost['busy_loop_share']:.0f} % for a Python loop and {100 * cost['sleep_share']:.0f} % for sleeping"
    )
    lines = [
        f"{where} {how}; median (smallest–largest).",
        "",
        "| | images/s | Stoker is … times as fast | to reach |",
        "|---|---|---|---|",
        *(_row(name, report) for name in report["titles"]),
        "",
        f"GIL time a sample: {aim} The same method finds {known}.",
    ]
    pages = ["\n".join(lines) + "\n"]
    pages += [
        part.markdown(report[name])
        for name, part in (("service", service), ("compat", compat), ("storage", storage))
        if name in report
    ]
    return "\n".join(pages)


def _row(name: str, report: dict[str, Any]) -> str:
    ratio, target = report["ratios"].get(name), report["targets"].get(name)
    shown = f"**{_spread(ratio, 2)}**" if ratio else ""
    return f"| {report['titles'][name]} | {_spread(report['images_per_s'][name], 0)} | {shown} | {target or ''} |"


def _peers(made: MadeShards, options: Options, stack: contextlib.ExitStack) -> Iterator[Contender]:
    from stoker_bench.peers import bare_loop, rows, torch_loader, torch_pillow, torch_tensor

    listed = rows.scan(made.shards)
    for name, title, dataset in (
        ("torch-pillow", "torch DataLoader, Pillow transforms", torch_pillow.PillowDataset(listed)),
        ("torch-tensor", "torch DataLoader, decode_jpeg and v2 transforms", torch_tensor.TensorDataset(listed)),
    ):
        found = torch_loader.tuned(dataset, options.batch_size, options.num_workers, options.prefetch_factors)
        stack.enter_context(contextlib.closing(found))
        _say(f"{name}: prefetch_factor {found.prefetch} is best of {options.prefetch_factors}")
        num_queued = found.prefetch * options.num_workers
        yield Stream(name, f"{title}, {options.num_workers} workers", found.batches(), num_queued)
    yield bare_loop.BareLoop(listed, options.batch_size, num_threads=machine.num_cores())


def _data(options: Options) -> MadeShards:
    folder = Path(tempfile.gettempdir()) / f"stoker-bench-{options.num_shards}x{options.rows_per_shard}"
    return datasets.make(PhotoShards(options.num_shards, options.rows_per_shard), folder)


def _spread(spread: dict[str, float], digits: int) -> str:
    return f"{spread['median']:,.{digits}f} ({spread['low']:,.{digits}f}–{spread['high']:,.{digits}f})"


def _tell_round(round_index: int, name: str, rate: float) -> None:
    _say(f"round {round_index + 1}: {name}: {rate:,.0f} images/s")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
