"""``python -m stoker_bench.gong``: the four pipelines, printed and written to ``bench-gong.json`` and ``.md``."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stoker_bench import datasets, quiet
from stoker_bench.gong import page, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    usual = run.Options()
    parser = argparse.ArgumentParser(prog="python -m stoker_bench.gong", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--device", help="the GPU, as cuda:0; without it nothing is made on one")
    parser.add_argument("--rounds", type=int, help=f"{usual.num_rounds} unless given")
    parser.add_argument("--profile", help=f"how the store behaves, as in stoker_bench.chaos; {usual.profile}")
    parser.add_argument("--short", action="store_true", help="shows in seconds that all of it works; no figures")
    asked = parser.parse_args(arguments)
    options = run.SHORT if asked.short else usual
    options = replace(options, num_rounds=asked.rounds or options.num_rounds, profile=asked.profile or options.profile)
    wanted = options.data
    folder = Path(tempfile.gettempdir()) / f"stoker-bench-{wanted.num_shards}x{wanted.rows_per_shard}"
    settle = (lambda: None) if asked.short else quiet.wait
    report = run.run(datasets.make(wanted, folder), options, asked.device, _say, settle)
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "bench-gong.json").write_text(json.dumps(report, indent=1) + "\n")
    (asked.out / "bench-gong.md").write_text(page.markdown(report))
    sys.stdout.write("\n" + page.markdown(report))
    return 0


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
