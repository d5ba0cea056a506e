"""Data sets in the layouts of other libraries, written after their published descriptions.

MDS: ``streaming/base/format/mds`` of mosaicml-streaming. TFRecord: ``core/lib/io/record_writer`` and
``core/example/feature.proto`` of TensorFlow, whose messages protobuf itself encodes here. Hugging Face: what
``Dataset.save_to_disk`` and ``push_to_hub`` of ``datasets`` leave.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import hashlib
import itertools
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from numpy.typing import NDArray

MDS_SIZES = {"int": 8, **{name: np.dtype(name).itemsize for name in ("uint8", "int32", "int64", "float32", "float64")}}
_MDS_DTYPES = {"uint8": 8, "int8": 9, "int32": 33, "float32": 34, "int64": 65, "float64": 66}

IMAGE = pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())])


def write_mds(
    folder: Path,
    columns: Mapping[str, str],
    shards: Sequence[Sequence[Mapping[str, bytes]]],
    compression: str | None = None,
    hashes: Sequence[str] = (),
) -> Path:
    """Write samples, whose values are encoded already, with an index; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(columns)
    sizes = [MDS_SIZES.get(columns[name]) for name in names]
    config = {
        "column_encodings": [columns[name] for name in names],
        "column_names": names,
        "column_sizes": sizes,
        "compression": compression,
        "format": "mds",
        "hashes": list(hashes),
        "size_limit": 1 << 26,
        "version": 2,
    }
    described = []
    for number, samples in enumerate(shards):
        raw = _mds_shard(names, sizes, samples, json.dumps(config, sort_keys=True).encode())
        raw_name = f"shard.{number:05d}.mds"
        packed = _packed(raw, compression)
        file_name = raw_name if packed is None else f"{raw_name}.{(compression or '').partition(':')[0]}"
        (folder / file_name).write_bytes(raw if packed is None else packed)
        zipped = None if packed is None else _mds_file(file_name, packed, hashes)
        entry = {**config, "samples": len(samples), "raw_data": _mds_file(raw_name, raw, hashes), "zip_data": zipped}
        described.append(entry)
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": described}))
    return folder


def mds_array(array: NDArray[Any], *, with_dtype: bool = True) -> bytes:
    """An array of small dimensions under the encoding ``ndarray``, or ``ndarray:dtype`` without its dtype."""
    head = bytes([_MDS_DTYPES[array.dtype.name]]) if with_dtype else b""
    return head + bytes([array.ndim << 2, *array.shape]) + array.tobytes()


def mds_pil(pixels: NDArray[np.uint8], mode: str) -> bytes:
    """Raw pixels under the encoding ``pil``."""
    height, width = pixels.shape[:2]
    return struct.pack("<III", width, height, len(mode)) + mode.encode() + pixels.tobytes()


def write_tfrecords(path: Path, records: Iterable[bytes], *, gzipped: bool = False) -> Path:
    """Write records in frames."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = b"".join(map(frame, records))
    path.write_bytes(gzip.compress(content, mtime=0) if gzipped else content)
    return path


def frame(record: bytes) -> bytes:
    """One record as a TFRecord file has it."""
    length = struct.pack("<Q", len(record))
    return length + _masked(length) + record + _masked(record)


def example(**features: bytes | Sequence[bytes] | Sequence[float] | Sequence[int]) -> bytes:
    """A ``tf.train.Example``; a name's double underscore stands for a slash."""
    message = _example_class()()
    for name, value in features.items():
        feature = message.features.feature[name.replace("__", "/")]
        listed = [value] if isinstance(value, bytes) else list(value)
        if listed and isinstance(listed[0], bytes):
            feature.bytes_list.value.extend(listed)
        elif listed and isinstance(listed[0], float):
            feature.float_list.value.extend(listed)
        else:
            feature.int64_list.value.extend(listed)
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


def hf_table(columns: Mapping[str, pa.Array], features: Mapping[str, Any] | None = None) -> pa.Table:
    """A table with the features that ``datasets`` keeps in the schema."""
    table = pa.table(dict(columns))
    if features is None:
        return table
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def images(files: Sequence[bytes | None], paths: Sequence[str | None] | None = None) -> pa.Array:
    """A column of pictures."""
    names = paths if paths is not None else [f"{number}.jpg" for number in range(len(files))]
    rows = [{"bytes": file, "path": name} for file, name in zip(files, names, strict=True)]
    return pa.array(rows, IMAGE)


def save_to_disk(folder: Path, table: pa.Table, num_files: int = 1, rows_per_batch: int = 3) -> Path:
    """Write a table as ``Dataset.save_to_disk`` does: Arrow streams, ``state.json``, ``dataset_info.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data-{number:05d}-of-{num_files:05d}.arrow" for number in range(num_files)]
    edges = np.linspace(0, len(table), num_files + 1).astype(int)
    for name, start, stop in zip(names, edges, edges[1:], strict=False):
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(start, stop - start), max_chunksize=rows_per_batch)
    state = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": "0123456789abcdef",
        "_split": "train",
    }
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def hub(folder: Path, table: pa.Table, split: str = "train", num_files: int = 1, rows_per_group: int = 4) -> Path:
    """Write a table as it lies on the hub: ``data/train-00000-of-00002.parquet``."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    edges = np.linspace(0, len(table), num_files + 1).astype(int)
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        name = f"{split}-{number:05d}-of-{num_files:05d}.parquet"
        pq.write_table(table.slice(start, stop - start), folder / "data" / name, row_group_size=rows_per_group)
    return folder


def _mds_shard(
    names: Sequence[str], sizes: Sequence[int | None], samples: Sequence[Mapping[str, bytes]], config: bytes
) -> bytes:
    bodies = []
    for sample in samples:
        own = [len(sample[name]) for name, size in zip(names, sizes, strict=True) if size is None]
        bodies.append(struct.pack(f"<{len(own)}I", *own) + b"".join(sample[name] for name in names))
    start = 4 + 4 * (len(samples) + 1) + len(config)
    offsets = np.cumsum([start, *map(len, bodies)]).astype("<u4")
    return struct.pack("<I", len(samples)) + offsets.tobytes() + config + b"".join(bodies)


def _mds_file(name: str, content: bytes, hashes: Sequence[str]) -> dict[str, Any]:
    digests = {kind: hashlib.new(kind, content).hexdigest() for kind in hashes}
    return {"basename": name, "bytes": len(content), "hashes": digests}


def _packed(raw: bytes, compression: str | None) -> bytes | None:
    match (compression or "").partition(":")[0]:
        case "":
            return None
        case "gz":
            return gzip.compress(raw, mtime=0)
        case "bz2":
            return bz2.compress(raw)
        case codec:
            packed: bytes = pa.compress(raw, codec={"br": "brotli"}.get(codec, codec), asbytes=True)
            return packed


def _masked(content: bytes) -> bytes:
    crc = _crc32c(content)
    return struct.pack("<I", (((crc >> 15) | (crc << 17 & 0xFFFFFFFF)) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc32c(content: bytes) -> int:
    """By the definition, a byte at a time: the reader's is another implementation."""
    table, crc = _crc_table(), 0xFFFFFFFF
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


@functools.cache
def _crc_table() -> tuple[int, ...]:
    def entry(value: int) -> int:
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        return value

    return tuple(map(entry, range(256)))


@functools.cache
def _example_class() -> Any:
    """The message class of ``tensorflow/core/example/example.proto``, from descriptors written by hand."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")
    listed = {"BytesList": kinds.TYPE_BYTES, "FloatList": kinds.TYPE_FLOAT, "Int64List": kinds.TYPE_INT64}
    for name, kind in listed.items():
        file.message_type.add(name=name).field.add(name="value", number=1, label=kinds.LABEL_REPEATED, type=kind)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("bytes_list", "float_list", "int64_list"), 1):
        kind_name = f".tensorflow.{name.title().replace('_', '')}"
        feature.field.add(
            name=name,
            number=number,
            label=kinds.LABEL_OPTIONAL,
            type=kinds.TYPE_MESSAGE,
            type_name=kind_name,
            oneof_index=0,
        )
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_STRING)
    entry.field.add(
        name="value", number=2, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_MESSAGE, type_name=".tensorflow.Feature"
    )
    entry_name = ".tensorflow.Features.FeatureEntry"
    features.field.add(
        name="feature", number=1, label=kinds.LABEL_REPEATED, type=kinds.TYPE_MESSAGE, type_name=entry_name
    )
    file.message_type.add(name="Example").field.add(
        name="features", number=1, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_MESSAGE, type_name=".tensorflow.Features"
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))
