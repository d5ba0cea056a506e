"""The command ``stoker index``."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Annotated

import typer

from stoker_service import arguments
from stoker_service.arguments import StorageOptions

if TYPE_CHECKING:
    from rich.console import Console

    from stoker.formats.open import Built, IndexProgress
    from stoker.formats.source import Source


def index(
    urls: Annotated[
        list[str],
        typer.Argument(
            help="Tar or Parquet patterns, such as 's3://bucket/train-{0000..0146}.tar', or one folder of pictures."
        ),
    ],
    manifest: Annotated[
        str | None, typer.Option(help="Where the index goes; beside the data or in the cache folder if not given.")
    ] = None,
    keys: Annotated[
        str, typer.Option(help="Where a name is split: first-dot (WebDataset's rule) or last-dot.")
    ] = "first-dot",
    storage_option: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Scan shards (of Parquet files, the footers) and write the index that a pipeline opens.

    Only what changed is scanned again.
    """
    from rich.console import Console

    options = arguments.storage_options(storage_option)
    source = arguments.source(urls, options, keys=keys, manifest=manifest)
    built = _build(source, Console(stderr=True))
    if as_json:
        typer.echo(json.dumps(summary(built)))
        return
    Console(highlight=False, soft_wrap=True).print(_sentence(built), markup=False)


def summary(built: Built) -> dict[str, str | int | list[str]]:
    """Return what was indexed: shards, rows, bytes, where the manifest lies, what is wrong with the data."""
    shards = built.manifest.shards
    return {
        "manifest": built.manifest.url,
        "shards": len(shards),
        "rows": sum(shard.num_rows for shard in shards),
        "bytes": sum(shard.size_bytes for shard in shards),
        "scanned": built.num_scanned,
        "kept": built.num_kept,
        "notices": list(built.manifest.notices),
    }


def _sentence(built: Built) -> str:
    found = summary(built)
    notices = "".join(f"note: {notice}\n" for notice in built.manifest.notices)
    counted = f"{found['rows']:,} rows in {found['shards']:,} shards, {found['bytes']:,} bytes"
    done = f"{found['scanned']:,} scanned, {found['kept']:,} known before"
    return f"{notices}{counted} ({done})\nindex: {found['manifest'] or 'kept nowhere; pass --manifest'}"


def _build(source: Source, console: Console) -> Built:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from stoker.errors import StokerWarning
    from stoker.formats.open import build_manifest

    columns = (
        TextColumn("indexing"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("{task.fields[rows]}"),
    )
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bar as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", StokerWarning)  # the command prints every notice itself
        task = progress.add_task("", total=None, rows="")

        def show(now: IndexProgress) -> None:
            rows = f"{now.shards_done:,} of {now.num_shards:,} shards, {now.rows_done:,} rows"
            progress.update(task, total=now.num_bytes, completed=now.bytes_done, rows=rows)

        return build_manifest(source, show)
