"""Makes WebDataset shards of real photographs, the same bytes for the same scenario.

A folder holds ``shard-000000.tar`` … beside ``dataset.json``, which says what was asked for, by which versions,
and each shard's SHA-256. A folder whose file says the same is used as it is; a shard appears under its name only when
it is complete.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from stoker.errors import DataError
from stoker_bench import photographs, pictures
from stoker_bench.photographs import Photograph

MAKER_VERSION = 1


@dataclass(frozen=True, slots=True)
class PhotoShards:
    """What is made. ``by_class`` sorts the samples by label, as a data set copied from class folders is."""

    num_shards: int = 8
    rows_per_shard: int = 256
    seed: int = 0
    by_class: bool = False
    extra_folder: str | None = None

    @property
    def num_rows(self) -> int:
        return self.num_shards * self.rows_per_shard


@dataclass(frozen=True, slots=True)
class MadeShards:
    """What lies on disk. ``pattern`` is what :func:`stoker.tar` takes."""

    folder: Path
    shards: tuple[Path, ...]
    num_rows: int
    size_bytes: int
    num_classes: int

    @property
    def pattern(self) -> str:
        return str(self.folder / f"shard-{{000000..{len(self.shards) - 1:06d}}}.tar")


def make(
    wanted: PhotoShards, folder: Path, *, progress: Callable[[int], None] | None = None, num_threads: int | None = None
) -> MadeShards:
    """Make the shards in ``folder``, or use those that lie there; ``progress`` is told of each shard's rows.

    Raises DataError if a shard that lies there is not what ``dataset.json`` says.
    """
    sources = photographs.shipped()
    if wanted.extra_folder:
        sources += photographs.from_folder(Path(wanted.extra_folder))
    folder.mkdir(parents=True, exist_ok=True)
    description = _describe(wanted, sources)
    known = _read_description(folder)
    if known is None or known["asked"] != description:
        known = {"asked": description, "sha256": _write_all(wanted, sources, folder, progress, num_threads)}
        _replace(folder / "dataset.json", json.dumps(known, indent=1).encode())
    shards = tuple(folder / name for name in known["sha256"])
    _verify(known["sha256"], folder)
    size_bytes = sum(shard.stat().st_size for shard in shards)
    return MadeShards(folder, shards, wanted.num_rows, size_bytes, len(sources))


def label(wanted: PhotoShards, number: int, num_classes: int) -> int:
    """Return the class of sample ``number``: its source photograph."""
    if wanted.by_class:
        return number * num_classes // wanted.num_rows
    return int(pictures.generator(wanted.seed ^ 0x5EED, number).integers(num_classes))


def shard_bytes(wanted: PhotoShards, sources: Sequence[Photograph], shard_index: int) -> bytes:
    """Return one shard's tar: for each sample ``<key>.cls`` and ``<key>.jpg``."""
    out = io.BytesIO()
    first = shard_index * wanted.rows_per_shard
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(first, first + wanted.rows_per_shard):
            label_of_it = label(wanted, number, len(sources))
            key = f"{label_of_it:04d}-{number:07d}"
            _add(tar, f"{key}.cls", str(label_of_it).encode())
            _add(tar, f"{key}.jpg", pictures.jpeg(sources[label_of_it], wanted.seed, number))
    return out.getvalue()


def _add(tar: tarfile.TarFile, name: str, payload: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(payload)
    tar.addfile(member, io.BytesIO(payload))


def _write_all(
    wanted: PhotoShards,
    sources: Sequence[Photograph],
    folder: Path,
    progress: Callable[[int], None] | None,
    num_threads: int | None,
) -> dict[str, str]:
    def write(shard_index: int) -> tuple[str, str]:
        payload = shard_bytes(wanted, sources, shard_index)
        name = f"shard-{shard_index:06d}.tar"
        _replace(folder / name, payload)
        return name, hashlib.sha256(payload).hexdigest()

    digests = {}
    with ThreadPoolExecutor(num_threads or os.cpu_count()) as pool:
        for name, digest in pool.map(write, range(wanted.num_shards)):
            digests[name] = digest
            if progress is not None:
                progress(wanted.rows_per_shard)
    return digests


def _replace(path: Path, payload: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(payload)
    partial.replace(path)


def _describe(wanted: PhotoShards, sources: Sequence[Photograph]) -> dict[str, Any]:
    return {
        **asdict(wanted),
        "maker": MAKER_VERSION,
        "numpy": metadata.version("numpy"),
        "pillow": metadata.version("pillow"),
        "photographs": [source.name for source in sources],
    }


def _read_description(folder: Path) -> dict[str, Any] | None:
    try:
        known: dict[str, Any] = json.loads((folder / "dataset.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return known if all((folder / name).exists() for name in known["sha256"]) else None


def _verify(digests: dict[str, str], folder: Path) -> None:
    for name, expected in digests.items():
        with (folder / name).open("rb") as shard:
            found = hashlib.file_digest(shard, "sha256").hexdigest()
        if found != expected:
            raise DataError(f"{folder / name}: SHA-256 is {found}, dataset.json says {expected}; delete the folder")
