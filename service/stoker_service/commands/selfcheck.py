"""The command ``stoker selfcheck``."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stoker_service import arguments
from stoker_service.console import complain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.table import Table

    from stoker.backends.tolerances import Limit, Tolerance
    from stoker.selfcheck import Finding, Report

_LEAST_WIDTH = 160
_SHOWN = 3


DeviceOption = Annotated[
    str, typer.Option(help="A GPU for DALI, such as cuda:0; cpu for none; auto takes the first that is here.")
]
FileOption = Annotated[Path | None, typer.Option("--json", help="Write all that was found to this file, as JSON.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Name every picture that is beyond.")]
FactorOption = Annotated[
    float, typer.Option(min=0, help="Allow this many times what is published; below 1 shows how near it is.")
]


def selfcheck(
    device: DeviceOption = "auto",
    json_file: FileOption = None,
    verbose: VerboseOption = False,
    factor: FactorOption = 1.0,
) -> None:
    """Run awkward pictures through every back-end that is here and compare their pixels and verdicts.

    cpu is compared with Pillow, the others with cpu. Exit code 1 if a difference is beyond what is published, or a
    picture good for one is bad for the other.
    """
    from rich.console import Console

    with arguments.wrong_usage():
        gpu, reason = _gpu(device)
    report = _run(gpu, reason, factor, Console(stderr=True))
    # Never so narrow that columns are cut: a terminal wraps what is too long for it.
    console = Console(
        highlight=False, markup=False, emoji=False, soft_wrap=True, width=max(Console().width, _LEAST_WIDTH)
    )
    console.print(_table(report))
    for line in _lines(report, verbose=verbose):
        console.print(line)
    if json_file is not None:
        _write(json_file, report)
    if not report.is_good:
        raise typer.Exit(1)


def as_json(report: Report) -> dict[str, Any]:
    """The report with the verdict of each finding, and of all."""
    found = [{**asdict(finding), "is_good": finding.is_good} for finding in report.findings]
    return {**asdict(report), "findings": found, "is_good": report.is_good}


def scaled(tolerance: Tolerance, factor: float) -> Tolerance:
    """A tolerance whose limits are all ``factor`` times as large."""

    def times(limit: Limit) -> Limit:
        border = None if limit.border is None else limit.border * factor
        return replace(limit, mean=limit.mean * factor, max=limit.max * factor, border=border)

    return replace(
        tolerance,
        pillow=None if tolerance.pillow is None else times(tolerance.pillow),
        dali=times(tolerance.dali),
        gpu=times(tolerance.gpu),
        mixed=times(tolerance.mixed),
    )


def _write(path: Path, report: Report) -> None:
    try:
        path.write_text(json.dumps(as_json(report), indent=1) + "\n")
    except OSError as error:
        complain(f"the report cannot be written: {error}; give --json a file in a folder that is there")
        raise typer.Exit(1) from error


def _gpu(device: str) -> tuple[str, str]:
    """The device to check, and why it is no GPU. Raises SpecError for one that is not here."""
    from stoker.backends.options import Backend
    from stoker_service import backend, gpus

    if device == "cpu":
        return device, "--device cpu leaves it out"
    if device != "auto":
        backend.check(Backend("dali", device=device))
        return device, ""
    try:
        return ("cuda:0", "") if gpus.visible_gpus() else ("cpu", "no GPU is visible here")
    except gpus.NoDriverError as error:
        return "cpu", str(error)


def _run(device: str, reason: str, factor: float, console: Console) -> Report:
    from stoker import selfcheck as check
    from stoker.backends.tolerances import TOLERANCES

    tolerances = [scaled(tolerance, factor) for tolerance in TOLERANCES]
    with console.status("checking") as status:
        return check.run(
            device,
            no_gpu=reason,
            tolerances=tolerances,
            on_chain=lambda name, index, total: status.update(f"checking {name} ({index + 1} of {total})"),
        )


def _table(report: Report) -> Table:
    from rich import box
    from rich.table import Table

    table = Table("back-end", "beside", "chain", "pictures", box=box.SIMPLE)
    for column in ("mean", "max", "border"):
        table.add_column(column, justify="right")
    for column in ("allowed", "nearest", "verdict"):
        table.add_column(column)
    for finding in sorted(report.findings, key=lambda each: (each.reference != "Pillow", each.backend)):
        table.add_row(*_row(finding))
    return table


def _row(finding: Finding) -> tuple[str, ...]:
    border = "" if finding.limit.border is None else f"{finding.border:.3g}"
    return (
        finding.backend,
        finding.reference,
        finding.chain,
        str(finding.num_pictures),
        f"{finding.mean:.2g}",
        f"{finding.max:.3g}",
        border,
        str(finding.limit) + ("" if finding.is_measured else " (not measured yet)"),
        finding.worst,
        "ok" if finding.is_good else f"{len(finding.problems)} beyond",
    )


def _lines(report: Report, *, verbose: bool) -> Iterator[str]:
    for finding in report.findings:
        shown = finding.problems if verbose else finding.problems[:_SHOWN]
        for problem in shown:
            yield f"beyond: {finding.chain}, {finding.backend} beside {finding.reference}: {problem}"
        if len(finding.problems) > len(shown):
            yield f"beyond: {finding.chain}: {len(finding.problems) - len(shown)} more; --verbose names them"
    for absent in report.absent:
        yield f"not here: {absent.name}: {absent.reason}"
    yield "made by: " + ", ".join(f"{package} {release}" for package, release in report.versions.items())
    num_bad = sum(not finding.is_good for finding in report.findings)
    whole = len(report.findings)
    yield "all within what is published" if report.is_good else f"{num_bad} of {whole} comparisons are beyond"
