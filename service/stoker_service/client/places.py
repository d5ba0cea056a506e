"""Where data lie, as another process understands it."""

from __future__ import annotations

import os
from dataclasses import replace

from stoker.formats.source import Source, Tar
from stoker.pipeline import Pipeline
from stoker.storage.urls import has_scheme


def with_absolute_paths(pipeline: Pipeline) -> Pipeline:
    """The same pipeline with its relative paths made absolute: a worker runs in another folder."""
    return replace(pipeline, source=_absolute(pipeline.source))


def _absolute(source: Source) -> Source:
    manifest = None if source.manifest is None else absolute(source.manifest)
    if isinstance(source, Tar):
        return replace(source, patterns=tuple(absolute(pattern) for pattern in source.patterns), manifest=manifest)
    return replace(source, url=absolute(source.url), manifest=manifest)


def absolute(place: str) -> str:
    """A plain path made absolute, a slash at its end kept; a URL as it is."""
    if has_scheme(place) or place.startswith(os.sep):
        return place
    return os.path.join(os.getcwd(), place)  # noqa: PTH109, PTH118  # a Path would drop the slash at the end
