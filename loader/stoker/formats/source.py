"""What a pipeline can read from, as data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, TypeAlias

from stoker.errors import SpecError
from stoker.formats.keys import KeyRule
from stoker.secret_names import is_secret
from stoker.spec import spec
from stoker.storage.urls import normalize

DEFAULT_CHUNK_BYTES = 1 << 20
IMAGE_EXTENSIONS = ("bmp", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp")
"""What torchvision's ImageFolder takes for pictures."""

LISTING_EXTENSIONS = (".csv", ".tsv", ".txt", ".lst")


@spec
class Tar:
    """Samples in tar files, WebDataset's way.

    ``patterns`` are URLs or paths with braces (``{0000..0146}``, ``{a,b}``) and globs. ``keys`` says where a member's
    name is split into key and field. Rows whose offsets lie in the same ``chunk_bytes`` are read together.
    ``manifest`` is where the index is kept, if not beside the shards or in the user's cache folder.
    """

    patterns: tuple[str, ...]
    keys: KeyRule = "first-dot"
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    storage_options: dict[str, str] | None = None
    manifest: str | None = None

    def __post_init__(self) -> None:
        if not self.patterns:
            raise SpecError("tar() needs at least one pattern, such as 's3://bucket/train-{0000..0146}.tar'")
        _check_chunk_bytes(self.chunk_bytes)

    def __repr__(self) -> str:
        return _shown(self)


@spec
class Files:
    """Samples in one file each: a folder of pictures, a prefix in a bucket, or a listing file.

    ``url`` ends in ``.csv``, ``.tsv``, ``.txt`` or ``.lst`` for a listing (path[,label] per line), else it is a folder.
    With ``labels="folders"`` the folder just below ``url`` is the class and the field ``cls`` its number, counted in
    sorted order or in the order of ``classes``; ``"auto"`` does so if every file lies in such a folder.
    """

    url: str
    extensions: tuple[str, ...] = IMAGE_EXTENSIONS
    labels: Literal["auto", "folders", "none"] = "auto"
    classes: tuple[str, ...] | None = None
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    storage_options: dict[str, str] | None = None
    manifest: str | None = None

    def __post_init__(self) -> None:
        if not self.url:
            raise SpecError("files() needs a URL or a path of a folder or a listing file")
        if not self.extensions:
            raise SpecError("files(extensions=()) would find nothing; name at least one, such as 'jpg'")
        if self.classes is not None and len(set(self.classes)) != len(self.classes):
            raise SpecError("files(classes=…) names a class twice")
        _check_chunk_bytes(self.chunk_bytes)

    def __repr__(self) -> str:
        return _shown(self)


@spec
class Parquet:
    """Samples in the rows of Parquet files.

    ``patterns`` are as those of :class:`Tar`. ``columns`` are the fields, all that can be if not given; only their
    bytes are read. Rows of one row group are read together. A column of text named ``__key__`` or ``key`` is the key.
    """

    patterns: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    storage_options: dict[str, str] | None = None
    manifest: str | None = None

    def __post_init__(self) -> None:
        if not self.patterns:
            raise SpecError("parquet() needs at least one pattern, such as 's3://bucket/train-*.parquet'")
        if self.columns is not None and not self.columns:
            raise SpecError("parquet(columns=()) would give no field; name at least one, or leave it out for all")
        if self.columns is not None and len(set(self.columns)) != len(self.columns):
            raise SpecError("parquet(columns=…) names a column twice")

    def __repr__(self) -> str:
        return _shown(self)


Source: TypeAlias = Tar | Files | Parquet

_KINDS: dict[str, type[Source]] = {"tar": Tar, "files": Files, "parquet": Parquet}


def tar(*patterns: str | os.PathLike[str], **options: Any) -> Tar:
    """Samples in tar files: ``stoker.tar("s3://bucket/train-{0000..0146}.tar")``; options as in :class:`Tar`."""
    return Tar(_texts("tar", patterns), **options)


def parquet(*patterns: str | os.PathLike[str], **options: Any) -> Parquet:
    """Samples in Parquet files: ``stoker.parquet("s3://bucket/train-*.parquet")``; options as in :class:`Parquet`."""
    return Parquet(_texts("parquet", patterns), **options)


def files(url: str | os.PathLike[str], **options: Any) -> Files:
    """Samples in one file each: ``stoker.files("/data/imagenet/train")``; options as in :class:`Files`."""
    return Files(os.fspath(url), **options)


def to_json(source: Source) -> dict[str, Any]:
    """The source as JSON-able data, without those storage options that look secret: who reads it needs its own."""
    kind = next(name for name, made in _KINDS.items() if isinstance(source, made))
    found: dict[str, Any] = {"source": kind}
    for field in fields(source):
        value = getattr(source, field.name)
        if field.name == "storage_options" and value is not None:
            value = {name: option for name, option in value.items() if not is_secret(name)}
        if value is not None:
            found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


def from_json(found: Mapping[str, Any]) -> Source:
    """The source that :func:`to_json` wrote. Raises SpecError for an unknown kind or option."""
    options = dict(found)
    kind = options.pop("source", None)
    if kind not in _KINDS:
        raise SpecError(f"unknown source {kind!r}; known: {', '.join(sorted(_KINDS))}")
    return _KINDS[kind](**options)


def is_listing(url: str) -> bool:
    """Whether the URL of a :class:`Files` means a listing file, not a folder."""
    return url.lower().endswith(LISTING_EXTENSIONS)


def folder_of(source: Files) -> str:
    """The URL, with a slash at its end, of the folder that a source lists or that its listing file lies in."""
    url = normalize(source.url)
    return url.rpartition("/")[0] + "/" if is_listing(url) else url.rstrip("/") + "/"


def _texts(name: str, patterns: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    for pattern in patterns:
        if not isinstance(pattern, str | os.PathLike):
            raise SpecError(f"{name}() takes URLs, found a {type(pattern).__name__}; for a list of them: {name}(*urls)")
    return tuple(os.fspath(pattern) for pattern in patterns)


def _check_chunk_bytes(chunk_bytes: int) -> None:
    if chunk_bytes < 1:
        raise SpecError(f"chunk_bytes must be at least 1, found {chunk_bytes}; 1 MiB is a good size")


def _shown(source: Source) -> str:
    parts = []
    for field in fields(source):
        value = getattr(source, field.name)
        if field.name == "storage_options" and value:
            value = {name: "***" if is_secret(name) else option for name, option in value.items()}
        if value != field.default:
            parts.append(f"{field.name}={value!r}")
    return f"{type(source).__name__}({', '.join(parts)})"
