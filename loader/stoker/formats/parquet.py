"""Parquet files that say in their metadata what they are."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from stoker.errors import StorageError
from stoker.formats.remote_file import RemoteFile

VERSION = 1
_KEY = b"stoker.manifest"
_CRC_KEY = b"stoker.crc32c"
"""Beside the checksums of pages: Parquet has none for its metadata. Files of before have neither."""

_READ_BYTES = 8 << 20

Kind = Literal["tar", "files", "parquet"]


class ManifestError(Exception):
    """The file is no manifest of this kind and version; it is made again."""


def describe(kind: Kind, content: Mapping[str, Any]) -> dict[bytes, bytes]:
    """The metadata of a manifest."""
    raw = json.dumps({"version": VERSION, "kind": kind, **content}).encode()
    return {_KEY: raw, _CRC_KEY: _crc(raw)}


def read_described(url: str, file: pq.ParquetFile, kind: Kind, schema: pa.Schema) -> dict[str, Any]:
    """What :func:`describe` wrote. Raises ManifestError if it is not there or damaged, or if the columns are others."""
    metadata = file.metadata.metadata or {}
    raw = metadata.get(_KEY)
    if raw and metadata.get(_CRC_KEY, crc := _crc(raw)) != crc:
        raise ManifestError(f"{url}: the metadata's checksum is {crc.decode()}, and {metadata[_CRC_KEY]!r} is written")
    content: dict[str, Any] = json.loads(raw) if raw else {}
    if content.get("version") != VERSION or content.get("kind") != kind:
        raise ManifestError(f"{url}: no {kind} manifest of version {VERSION}")
    if not file.schema_arrow.equals(schema):
        raise ManifestError(f"{url}: expected the columns {schema}, found {file.schema_arrow}")
    return content


def _crc(raw: bytes) -> bytes:
    return f"{crc32c(raw):08x}".encode()


def open_parquet(file: RemoteFile | pa.NativeFile) -> pq.ParquetFile:
    """Open a Parquet file, to be read with ``use_threads=False``, with few, large reads.

    Neither Arrow's threads nor ``pre_buffer`` are used: they may drop the last Python buffer after the read has
    returned, and ask for the GIL for it while the interpreter leaves, which ends the process with SIGABRT. Checksums
    of pages are verified where there are some.
    """
    source = io.BufferedReader(file, _READ_BYTES) if isinstance(file, RemoteFile) else file
    return pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)


@contextlib.contextmanager
def broken_is_manifest_error(url: str) -> Iterator[None]:
    """What pyarrow and json raise over a damaged file becomes ManifestError; a store's own errors pass."""
    try:
        yield
    except StorageError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise ManifestError(f"{url}: {error}") from error
