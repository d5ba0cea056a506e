"""Small tar shards for tests, with known keys, labels and row counts.

Sample ``n``, counted over all shards, has the key ``s<shard>-<row>`` and the label ``n % num_classes`` (or, sorted by
class, ``n * num_classes // total``).
"""

from __future__ import annotations

import functools
import io
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from support import pictures

Fields = Mapping[str, bytes]


def tar_bytes(samples: Iterable[tuple[str, Fields]], tar_format: int = tarfile.USTAR_FORMAT) -> bytes:
    """Return a tar of these samples: a member ``<key>.<field>`` per field, in the order given."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tar_format) as tar:
        for key, fields in samples:
            for name, payload in fields.items():
                member = tarfile.TarInfo(f"{key}.{name}")
                member.size = len(payload)
                tar.addfile(member, io.BytesIO(payload))
    return out.getvalue()


def write_tar(path: Path, samples: Iterable[tuple[str, Fields]], tar_format: int = tarfile.USTAR_FORMAT) -> Path:
    """Write a tar of these samples and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tar_bytes(samples, tar_format))
    return path


def samples(rows: Sequence[int], *, num_classes: int = 10, by_class: bool = False, images: bool = True) -> Shards:
    """Return the samples of shards with these row counts, without writing them.

    A sample has the fields ``cls`` and ``jpg`` (64 × 48, one of 32 pictures), or ``cls`` and ``txt`` without images.
    """
    total, number, shards = sum(rows), 0, []
    for shard_index, num_rows in enumerate(rows):
        shard = []
        for row in range(num_rows):
            label = number * num_classes // total if by_class else number % num_classes
            payload = {"jpg": picture(number % 32)} if images else {"txt": f"text {number}".encode()}
            shard.append((f"s{shard_index:02d}-{row:04d}", {"cls": str(label).encode(), **payload}))
            number += 1
        shards.append(shard)
    return shards


def make_shards(
    folder: Path,
    rows: Sequence[int] = (7, 11, 2),
    *,
    num_classes: int = 10,
    by_class: bool = False,
    images: bool = True,
) -> list[Path]:
    """Write ``shard-0000.tar`` … with these row counts below ``folder``; see :func:`samples`."""
    made = samples(rows, num_classes=num_classes, by_class=by_class, images=images)
    return [write_tar(folder / f"shard-{index:04d}.tar", shard) for index, shard in enumerate(made)]


def make_broken_shard(path: Path, num_good: int = 10) -> list[str]:
    """Write a shard with good samples and, spread among them, those of pain 35; return the keys of the broken ones."""
    (shard,) = samples([num_good])
    keys = []
    for index, (name, payload) in enumerate(pictures.broken().items()):
        key = f"broken-{name.removesuffix('.jpg')}"
        shard.insert(1 + 3 * index, (key, {"cls": b"0", "jpg": payload}))
        keys.append(key)
    write_tar(path, shard)
    return keys


@functools.cache
def picture(seed: int) -> bytes:
    """Return one small JPEG, made once per process."""
    return pictures.jpeg(seed)


Shards = list[list[tuple[str, dict[str, bytes]]]]
