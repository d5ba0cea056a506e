"""The command ``stoker convert``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stoker_service import arguments
from stoker_service.arguments import StorageOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from stoker.convert import Converted, ConvertOptions, ConvertProgress
    from stoker.convert.run import Look

_SHOWN = 5


SourceArgument = Annotated[
    str, typer.Argument(help="A folder, bucket prefix or pattern: pictures, Arrow or Parquet, MDS, TFRecord, tar.")
]
DestinationArgument = Annotated[str, typer.Argument(help="A folder or bucket prefix for the shards.")]
ToOption = Annotated[Literal["tar", "parquet"], typer.Option(help="The layout of the shards.")]
FromOption = Annotated[
    Literal["files", "hugging-face", "mds", "tar", "tfrecord"] | None,
    typer.Option("--from", help="What the source is; found out by looking if not given."),
]
BytesOption = Annotated[
    str, typer.Option(help="Size of a shard by what its records have in the source, such as 256MiB.")
]
RowsOption = Annotated[int | None, typer.Option(help="The most records of a shard.")]
WorkersOption = Annotated[
    int | None, typer.Option(help="Shards made at once, each held in memory; as many as cores if not given.")
]
SeedOption = Annotated[
    int | None, typer.Option(help="Mix the records over the whole source first; for data sorted by class.")
]
OnErrorOption = Annotated[
    Literal["raise", "skip"], typer.Option(help="Stop at a bad record, or leave it out and list it.")
]
ColumnsOption = Annotated[
    str | None, typer.Option(help="Columns or features to take, such as image,label; all if not given.")
]
ExtensionsOption = Annotated[
    str | None, typer.Option(help="Files of a folder to take, such as jpg,txt; pictures if not given.")
]
LabelsOption = Annotated[
    Literal["auto", "folders", "none"], typer.Option(help="Whether class folders make the field cls.")
]
SideOption = Annotated[
    int | None, typer.Option(help="Make larger pictures smaller, to a shorter side of this many pixels.")
]
EncodeOption = Annotated[Literal["jpeg", "webp"] | None, typer.Option(help="Encode pictures anew.")]
QualityOption = Annotated[int, typer.Option(help="Quality of pictures that are encoded anew, 1 to 100.")]
PicturesOption = Annotated[
    str | None, typer.Option(help="The fields that the last three are about; jpg, png, webp… if not given.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be made, and make nothing.")]
DestinationStorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--destination-option", help="For the destination's store, as name=value; as --storage-option if not given."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]


def convert(
    source: SourceArgument,
    destination: DestinationArgument,
    to: ToOption = "tar",
    kind: FromOption = None,
    shard_bytes: BytesOption = "256MiB",
    shard_rows: RowsOption = None,
    workers: WorkersOption = None,
    shuffle_seed: SeedOption = None,
    on_error: OnErrorOption = "raise",
    columns: ColumnsOption = None,
    extensions: ExtensionsOption = None,
    labels: LabelsOption = "auto",
    shorter_side: SideOption = None,
    encode: EncodeOption = None,
    quality: QualityOption = 90,
    pictures: PicturesOption = None,
    dry_run: DryRunOption = False,
    storage_option: StorageOptions = None,
    destination_option: DestinationStorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make shards of other layouts, or of a folder of pictures. A killed run goes on with the same command.

    Every record is read back and compared. The index is made too, so that opening the shards scans nothing.
    """
    from rich.console import Console

    with arguments.wrong_usage():
        from stoker.convert import ConvertOptions

        options = ConvertOptions(
            to=to,
            kind=kind,
            shard_bytes=arguments.size(shard_bytes, "--shard-bytes") or 0,
            shard_rows=shard_rows,
            shuffle_seed=shuffle_seed,
            on_error=on_error,
            columns=_names(columns),
            extensions=_names(extensions),
            labels=labels,
            shorter_side=shorter_side,
            encode=encode,
            quality=quality,
            pictures=_names(pictures),
            workers=workers,
            storage_options=arguments.storage_options(storage_option),
            destination_options=arguments.storage_options(destination_option),
        )
    if dry_run:
        from stoker.convert import look

        found = look(source, options)
        _say(asdict(found) if as_json else _would(found, options))
        return
    made = _convert(source, destination, options, Console(stderr=True))
    _say(_summary(made) if as_json else _sentence(made))


def _say(result: dict[str, Any] | str) -> None:
    from rich.console import Console

    if isinstance(result, dict):
        typer.echo(json.dumps(result))
    else:
        Console(highlight=False, soft_wrap=True).print(result, markup=False)


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _would(found: Look, options: ConvertOptions) -> str:
    rows = found.shard_rows
    lines = [
        f"{found.kind}: {found.num_rows:,} records, {found.num_bytes:,} bytes",
        f"would make {len(rows):,} {options.to} shards of {min(rows):,} to {max(rows):,} records",
        *(f"note: {problem}" for problem in found.problems[:_SHOWN]),
    ]
    return "\n".join([*lines, f"note: {found.note}"] if found.note else lines)


def _summary(made: Converted) -> dict[str, Any]:
    return {
        "from": made.kind,
        "to": made.to,
        "pattern": made.pattern,
        "manifest": made.manifest,
        "shards": made.num_shards,
        "rows": made.num_rows,
        "bytes": made.num_bytes,
        "kept": made.shards_kept,
        "skipped": [asdict(bad) for bad in made.skipped],
    }


def _sentence(made: Converted) -> str:
    kept = f" ({made.shards_kept:,} of them from a run before)" if made.shards_kept else ""
    lines = [f"{made.num_rows:,} records in {made.num_shards:,} shards{kept}, {made.num_bytes:,} bytes, all compared"]
    lines += _left_out(made)
    lines += [f"note: {made.note}"] if made.note else []
    return "\n".join([*lines, f"listed in: {made.manifest}", f"open with: stoker.{made.to}({made.pattern!r})"])


def _left_out(made: Converted) -> Sequence[str]:
    if not made.skipped:
        return []
    lines = [f"{len(made.skipped):,} bad records left out, all listed in the manifest:"]
    return [*lines, *(f"  {bad.url} row {bad.row}: {bad.reason}" for bad in made.skipped[:_SHOWN])]


def _convert(source: str, destination: str, options: ConvertOptions, console: Console) -> Converted:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from stoker.convert import convert as run

    columns = (
        TextColumn("{task.fields[stage]}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[counts]}"),
    )
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bar as progress:
        task = progress.add_task("", total=None, stage="counting records", counts="")

        def show(now: ConvertProgress) -> None:
            kept = f" ({now.shards_kept:,} kept)" if now.shards_kept else ""
            counts = f"{now.shards_done:,} of {now.num_shards:,} shards{kept}, {now.rows_done:,} records"
            progress.update(task, total=now.num_rows, completed=now.rows_done, stage="converting", counts=counts)

        return run(source, destination, options, on_progress=show)
