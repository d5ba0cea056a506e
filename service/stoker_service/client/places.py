"""Where data lie, as another process understands it."""

from __future__ import annotations

from dataclasses import replace

from stoker.formats.source import Files, Source
from stoker.pipeline import Pipeline
from stoker.storage.patterns import anchored
from stoker.storage.urls import normalize


def with_absolute_paths(pipeline: Pipeline) -> Pipeline:
    """The same pipeline with its relative paths made absolute: a worker runs in another folder."""
    return replace(pipeline, source=_absolute(pipeline.source))


def _absolute(source: Source) -> Source:
    manifest = None if source.manifest is None else normalize(source.manifest)
    if isinstance(source, Files):
        return replace(source, url=normalize(source.url), manifest=manifest)
    patterns = tuple(found for pattern in source.patterns for found in anchored(pattern))
    return replace(source, patterns=patterns, manifest=manifest)
