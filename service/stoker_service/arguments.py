"""What several commands understand by the URLs and options they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

if TYPE_CHECKING:
    from stoker.formats.keys import KeyRule
    from stoker.formats.source import Source

StorageOptions = Annotated[
    list[str] | None,
    typer.Option("--storage-option", "-o", help="For the store, as name=value; may be given several times."),
]


def storage_options(pairs: Sequence[str] | None) -> dict[str, str] | None:
    """Turn ``name=value`` texts into options; None if there are none."""
    for pair in pairs or ():
        if "=" not in pair:
            raise typer.BadParameter(f"{pair!r}: expected name=value", param_hint="--storage-option")
    return dict(pair.split("=", 1) for pair in pairs) if pairs else None


def source(
    urls: Sequence[str],
    options: Mapping[str, str] | None = None,
    *,
    keys: str = "first-dot",
    manifest: str | None = None,
) -> Source:
    """Return tars if the URLs name some, else the one folder or listing of pictures."""
    from stoker.formats.source import Files, Tar

    given = dict(options) if options else None
    if len(urls) == 1 and not _names_tars(urls[0]):
        return Files(urls[0], storage_options=given, manifest=manifest)
    # Tar itself says what is wrong with another word for keys.
    return Tar(tuple(urls), keys=cast("KeyRule", keys), storage_options=given, manifest=manifest)


def _names_tars(url: str) -> bool:
    return ".tar" in url or url.endswith(".tgz")
