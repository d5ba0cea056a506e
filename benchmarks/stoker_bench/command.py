"""The command ``stoker bench``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from stoker_service import arguments
from stoker_service.arguments import StorageOptions


def bench(
    source: Annotated[
        str, typer.Argument(help="Tar or Parquet pattern, such as 's3://bucket/train-{0000..0146}.tar', or a folder.")
    ],
    preset: Annotated[str, typer.Option(help="What is done to each sample.")] = "imagenet_train",
    batch_size: Annotated[int, typer.Option(min=1)] = 256,
    batches: Annotated[int, typer.Option(min=2, help="Batches for each of the three rates.")] = 40,
    threads: Annotated[int | None, typer.Option(min=1, help="Decoding threads; one per core unless given.")] = None,
    output: Annotated[Literal["numpy", "torch"], typer.Option(help="What the trainer gets.")] = "numpy",
    fast: Annotated[bool, typer.Option("--fast", help="Plain bilinear instead of anti-aliased.")] = False,
    storage_option: StorageOptions = None,
    chaos: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE",
            help="For the cold rate, make storage behave as a cloud's, by a seed: gcs, s3, s3-far, flaky, throttled; "
            "with changes, such as 'gcs,seed=3,latency_ms=80,rate=50' (see stoker.storage.chaos.profile).",
        ),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here too.")] = None,
) -> None:
    """Measure how fast a source gives batches: cold, warm, and ceiling (batches already made)."""
    from rich.console import Console

    from stoker.storage.chaos import profile
    from stoker_bench import rates, report

    options = arguments.storage_options(storage_option)
    with arguments.wrong_usage():
        profile.parse(chaos or "none")
    scenario = rates.Scenario(source, preset, batch_size, batches, output, threads, fast, options, chaos)
    console = Console()
    with console.status("indexing") as status:
        measured = rates.measure_all(scenario, lambda name: status.update(f"measuring: {name}"))
    console.print(report.to_table(measured))
    console.print(f"limited by: {measured[0].limited_by} when cold, {measured[1].limited_by} when warm", style="dim")
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(report.to_json(scenario, measured), indent=1) + "\n")
        console.print(f"written: {json_file}", style="dim", soft_wrap=True)
