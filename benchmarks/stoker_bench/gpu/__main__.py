"""``python -m stoker_bench.gpu``: all that can be found out on a machine with a GPU; ``benchmarks/gpu.sh`` runs it.

Writes ``bench-gpu.json``, ``bench-gpu.md`` and ``gpu.log``. The exit code is 1 if a part failed; what cannot be
measured here, since there is no GPU, is named and fails nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from stoker_bench.gpu import page, placements, running
from stoker_bench.gpu.running import PARTS, Asked


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m stoker_bench.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--budget-s", type=float, default=540.0, help="seconds for all parts together")
    parser.add_argument("--short", action="store_true", help="shows that all of it works; no figures")
    parser.add_argument("--part", action="append", choices=[part.name for part in PARTS], help="only this; repeatable")
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # one part, in a process of its own
    asked = parser.parse_args(arguments)
    if asked.measure:
        return _measure(asked)
    report = running.run(Asked(asked.device, asked.out, asked.budget_s, asked.short, tuple(asked.part or ())), _say)
    (asked.out / "bench-gpu.json").write_text(json.dumps(report, indent=1) + "\n")
    (asked.out / "bench-gpu.md").write_text(page.markdown(report))
    sys.stdout.write("\n" + page.markdown(report))
    return 1 if running.failed(report) else 0


def _measure(asked: argparse.Namespace) -> int:
    from stoker_bench.gpu import parts

    make = parts.Options.short if asked.short else parts.Options
    missing = placements.missing_torch() if asked.measure != "machine" else None
    options = make(asked.device, asked.budget_s)
    found = {"missing": missing} if missing else parts.MEASURED[asked.measure](options, _say)
    (asked.out / f"gpu-{asked.measure}.json").write_text(json.dumps(found))
    return 0


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
