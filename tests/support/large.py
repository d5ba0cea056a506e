"""Shards of large samples that take no room on the disk, for they are files with holes."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

import stoker
from stoker import ops

MIB = 1 << 20

_BLOCK = 512


def make_large(path: Path, num_samples: int, sample_bytes: int) -> str:
    """Write a tar of samples with a field ``npy``, an array of that many zeros but for its ends, and return its path.

    Byte 0 of sample ``n`` is ``n % 251 + 1``, and so is the last one. The key is the number in five digits.
    """
    header = _npy_header(sample_bytes)
    with path.open("wb") as out:
        for number in range(num_samples):
            member = tarfile.TarInfo(f"{number:05d}.npy")
            member.size = len(header) + sample_bytes
            out.write(member.tobuf(tarfile.USTAR_FORMAT) + header)
            mark = bytes([number % 251 + 1])
            out.write(mark)
            out.seek(sample_bytes - 2, 1)
            out.write(mark)
            out.seek(-out.tell() % _BLOCK, 1)
        out.write(bytes(2 * _BLOCK))
    return str(path)


def arrays(path: str, batch_size: int, **settings: Any) -> stoker.Pipeline:
    """A pipeline over what :func:`make_large` wrote."""
    return stoker.Pipeline(stoker.tar(path), [ops.DecodeNumpy("npy", to="array")], batch_size=batch_size, **settings)


def keys_of_whole(batch: dict[str, Any]) -> list[int]:
    """The numbers of a batch's samples, whose arrays must have the right ends."""
    numbers = [int(key) for key in batch["__key__"]]
    marks = [number % 251 + 1 for number in numbers]
    assert [(int(row[0]), int(row[-1])) for row in batch["array"]] == [(mark, mark) for mark in marks]
    return numbers


def _npy_header(num_bytes: int) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "|u1", "fortran_order": False, "shape": (num_bytes,)})
    return out.getvalue()
