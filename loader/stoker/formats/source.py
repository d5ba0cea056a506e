"""What a pipeline can read from, as data."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, TypeAlias

from stoker.errors import SpecError
from stoker.formats.keys import KeyRule
from stoker.spec import spec
from stoker.storage.urls import normalize

DEFAULT_CHUNK_BYTES = 1 << 20
IMAGE_EXTENSIONS = ("bmp", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp")
"""What torchvision's ImageFolder takes for pictures."""

LISTING_EXTENSIONS = (".csv", ".tsv", ".txt", ".lst")

_SECRET = re.compile(
    r"secret|token|passw|credential|signature|sas_|_sas|^sas$|(access|account|api|private|encryption|customer)_?key|^key$"
)


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


Source: TypeAlias = Tar | Files

_KINDS: dict[str, type[Tar | Files]] = {"tar": Tar, "files": Files}


def tar(*patterns: str | os.PathLike[str], **options: Any) -> Tar:
    """Samples in tar files: ``stoker.tar("s3://bucket/train-{0000..0146}.tar")``; options as in :class:`Tar`."""
    for pattern in patterns:
        if not isinstance(pattern, str | os.PathLike):
            raise SpecError(f"tar() takes URLs, found a {type(pattern).__name__}; for a list of them: tar(*urls)")
    return Tar(tuple(os.fspath(pattern) for pattern in patterns), **options)


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


def is_secret(option: str) -> bool:
    """Whether a storage option's name looks like that of a secret."""
    return _SECRET.search(option.lower()) is not None


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
