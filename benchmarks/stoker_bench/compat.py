"""``make bench``, torch datasets: our loader beside torch's own, on the same dataset with the same arguments."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stoker_bench import datasets, machine, quiet, rounds
from stoker_bench.contender import Contender, Stream
from stoker_bench.datasets import MadeShards, PhotoShards
from stoker_bench.rounds import Spread
from stoker_bench.service import spread

PARTS = ("pictures", "small", "second-epoch", "memory")


@dataclass(frozen=True, slots=True)
class Options:
    """How long and on what is measured."""

    num_rounds: int = 7
    num_batches: int = 12
    batch_size: int = 256
    num_workers: int = 2
    num_small: int = 10_000
    heavy_bytes: int = 200_000_000
    num_paths: int = 5_000_000
    parts: tuple[str, ...] = PARTS


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure this part alone, print, and write ``bench-compat.json`` and ``bench-compat.md``."""
    usual = Options()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--rounds", type=int, default=usual.num_rounds)
    parser.add_argument(
        "--batches", type=int, default=usual.num_batches, help="batches of pictures a contender and round"
    )
    parser.add_argument("--batch-size", type=int, default=usual.batch_size)
    parser.add_argument("--paths", type=int, default=usual.num_paths)
    parser.add_argument("--rows-per-shard", type=int, default=256)
    parser.add_argument("--part", action="append", choices=PARTS, help="measure only this; may be given several times")
    asked = parser.parse_args(arguments)
    options = Options(
        asked.rounds, asked.batches, asked.batch_size, num_paths=asked.paths, parts=tuple(asked.part or PARTS)
    )
    folder = Path(tempfile.gettempdir()) / f"stoker-bench-8x{asked.rows_per_shard}"
    made = datasets.make(PhotoShards(8, asked.rows_per_shard), folder)
    report = {"machine": machine.describe(), **run(made, options, _say)}
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "bench-compat.json").write_text(json.dumps(report, indent=1) + "\n")
    (asked.out / "bench-compat.md").write_text(markdown(report))
    sys.stdout.write("\n" + markdown(report))
    return 0


def run(
    made: MadeShards, options: Options, say: Callable[[str], None], settle: Callable[[], None] = quiet.wait
) -> dict[str, Any]:
    """Return all figures as JSON values. ``settle`` returns when the machine is idle."""
    measured: dict[str, Callable[[], Any]] = {
        "pictures": lambda: _pictures(made, options, say, settle),
        "small": lambda: _small(options, say, settle),
        "second-epoch": lambda: _second_epoch(options, say, settle),
        "memory": lambda: _memory(options, say),
    }
    return {"options": asdict(options), **{part: measured[part]() for part in PARTS if part in options.parts}}


# -- pictures ----------------------------------------------------------------------------------------------------------


def _pictures(
    made: MadeShards, options: Options, say: Callable[[str], None], settle: Callable[[], None]
) -> dict[str, Any]:
    from stoker_bench import compat_pictures

    root = compat_pictures.files_of(made)
    pillow, tensor = compat_pictures.pillow(root), compat_pictures.tensors(root)
    with contextlib.ExitStack() as stack:
        contenders = list(_contenders(pillow, tensor, options, stack))
        for contender in contenders:
            say(f"warm-up: {contender.name}: {contender.images_per_s(2):,.0f} images/s")
        found = rounds.measure(
            contenders,
            options.num_rounds,
            options.num_batches,
            lambda index, name, rate: say(f"round {index + 1}: {name}: {rate:,.0f} images/s"),
            settle,
        )
    pairs = {"processes": ("stoker", "torch"), "tensors": ("stoker-tensor", "torch-tensor")}
    pairs["threads"] = ("threads-tensor", "torch-tensor")
    return {
        "images_per_s": {name: asdict(Spread.of(rates)) for name, rates in found.items()},
        "ratios": {
            name: asdict(rounds.against({"theirs": found[theirs], "ours": found[ours]}, "theirs")["ours"])
            for name, (ours, theirs) in pairs.items()
        },
    }


def _contenders(pillow: Any, tensor: Any, options: Options, stack: contextlib.ExitStack) -> Iterator[Contender]:
    from stoker_bench.peers.torch_loader import TorchLoader

    for name, dataset, which, more in (
        ("torch", pillow, "torch", {}),
        ("stoker", pillow, "stoker", {}),
        ("torch-tensor", tensor, "torch", {}),
        ("stoker-tensor", tensor, "stoker", {}),
        ("threads-tensor", tensor, "stoker", {"worker_method": "thread"}),
    ):
        loader = TorchLoader(dataset, options.batch_size, options.num_workers, 2, which, **more)
        stack.enter_context(contextlib.closing(loader))
        yield Stream(name, name, loader.batches(), 2 * options.num_workers)


# -- small samples -----------------------------------------------------------------------------------------------------


def _small(options: Options, say: Callable[[str], None], settle: Callable[[], None]) -> dict[str, Any]:
    from stoker_bench.compat_data import SmallTensors
    from stoker_bench.peers.torch_loader import TorchLoader

    dataset = SmallTensors(options.num_small)
    found: dict[str, Any] = {}
    for batch_size in (1, 32):
        num_batches = options.num_small // batch_size
        with contextlib.ExitStack() as stack:
            contenders = []
            for which in ("torch", "stoker"):
                loader = TorchLoader(dataset, batch_size, options.num_workers, 2, which)
                stack.enter_context(contextlib.closing(loader))
                contenders.append(Stream(which, which, loader.batches(), 2 * options.num_workers))
            rates = rounds.measure(
                contenders,
                options.num_rounds,
                num_batches,
                lambda index, name, rate: say(f"round {index + 1}: {name}: {rate:,.0f} small samples/s"),
                settle,
            )
        ratio = rounds.ratios(rates, "stoker")["torch"]
        speeds = {name: asdict(Spread.of(values)) for name, values in rates.items()}
        found[str(batch_size)] = {"samples_per_s": speeds, "ratio": asdict(ratio)}
    return found


# -- the second epoch --------------------------------------------------------------------------------------------------


def _second_epoch(options: Options, say: Callable[[str], None], settle: Callable[[], None]) -> dict[str, Any]:
    """Seconds from ``iter()`` to the first batch of the second epoch, workers not persistent, the usual default."""
    from stoker_bench.compat_data import Heavy
    from stoker_bench.peers.torch_loader import LOADERS

    dataset = Heavy(options.heavy_bytes)
    found: dict[str, list[float]] = {"torch, forkserver": [], "torch, fork": [], "stoker": []}
    for round_index in range(max(5, options.num_rounds - 2)):
        for name in rounds.rotated(list(found), round_index):
            which, _, context = name.partition(", ")
            more = {"multiprocessing_context": context} if context else {}
            loader = LOADERS[which](dataset, batch_size=32, num_workers=options.num_workers, **more)
            next(iter(loader))
            settle()
            begun_s = time.perf_counter()
            iterator = iter(loader)
            next(iterator)
            found[name].append(time.perf_counter() - begun_s)
            del iterator  # torch ends its workers here
            say(f"round {round_index + 1}: {name}: second epoch after {found[name][-1]:.3f} s")
            if which == "stoker":
                loader.close()
    return {
        "seconds": {name: asdict(Spread.of(values)) for name, values in found.items()},
        "ratios": {name: asdict(each) for name, each in rounds.ratios(found, "stoker").items()},
    }


# -- memory ------------------------------------------------------------------------------------------------------------


def _memory(options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    found = {}
    for which in ("torch", "stoker"):
        arguments = [which, str(options.num_paths), "4", "3"]
        printed = subprocess.run(
            [sys.executable, "-m", "stoker_bench.compat_memory", *arguments],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=1200,
        )
        found[which] = json.loads(printed.stdout)
        say(f"memory: {which}: {[f'{num_bytes / 1e6:,.0f}' for num_bytes in found[which]]} MB")
    return found


# -- shown -------------------------------------------------------------------------------------------------------------


def markdown(report: dict[str, Any]) -> str:
    """Return the figures as a part of a Markdown page."""
    lines = ["## Torch datasets", "", "| Stoker against torch's DataLoader, 2 workers | ratio | aim |", "|---|---|---|"]
    options = report["options"]
    if "pictures" in report:
        ratios = report["pictures"]["ratios"]
        lines += [
            f"| images/s, ImageFolder, Pillow transforms, processes | {spread(ratios['processes'], 2)} | ≥ 1.1 |",
            f"| images/s, ImageFolder, decode_jpeg and v2 transforms, processes | {spread(ratios['tensors'], 2)} | |",
            f"| … our threads against torch's processes | {spread(ratios['threads'], 2)} | |",
        ]
    for batch_size, small in report.get("small", {}).items():
        aim = "≥ 3" if batch_size == "1" else ""
        lines.append(
            f"| {options['num_small']:,} small tensors, batches of {batch_size} | {spread(small['ratio'], 1)} | {aim} |"
        )
    if "second-epoch" in report:
        for name, ratio in report["second-epoch"]["ratios"].items():
            aim = "≤ 0.05" if "server" in name else ""
            lines.append(f"| first batch of the second epoch, 200 MB dataset, {name} | {spread(ratio, 3)} | {aim} |")
    for which, found in report.get("memory", {}).items():
        growth = (found[-1] - found[0]) / found[0]
        aim = "< 5 %" if which == "stoker" else ""
        lines.append(
            f"| memory, 3 epochs over {options['num_paths']:,} paths, 4 workers, {which}: "
            f"{found[0] / 1e6:,.0f} MB, growth | {100 * growth:.1f} % | {aim} |"
        )
    return "\n".join(lines) + "\n"


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
