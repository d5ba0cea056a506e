"""All records of a source, as a conversion reads them, and of shards, as training reads them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stoker.convert.make import in_order
from stoker.convert.plan import plan
from stoker.convert.records import Records
from stoker.errors import SampleError
from stoker.formats.open import open_dataset
from stoker.formats.source import Source
from stoker.sample import RawSample

Fields = dict[str, bytes]


def read_all(records: Records, seed: int | None = None) -> list[RawSample | SampleError]:
    """Every record in the source's order, or mixed, in one shard."""
    with ThreadPoolExecutor(2) as pool:
        survey = records.survey(pool)
    found = plan(survey, 1 << 60, None, seed)
    return [record for _, record in in_order(records, found, 0)] if found.num_shards else []


def good(records: Records, seed: int | None = None) -> list[Fields]:
    """The fields of every record. Raises the first bad one."""
    return [fields_of(record) for record in read_all(records, seed)]


def fields_of(record: RawSample | SampleError) -> Fields:
    """The fields as bytes. Raises a bad record."""
    if isinstance(record, SampleError):
        raise record
    return {name: as_bytes(value) for name, value in record.fields.items()}


def as_bytes(value: Any) -> bytes:
    """A field of a raw sample, which holds bytes."""
    assert isinstance(value, bytes | memoryview)
    return bytes(value)


def stored(source: Source) -> list[tuple[str, Fields]]:
    """Key and fields of every sample of an opened source, in its order."""
    dataset = open_dataset(source)
    found: list[tuple[str, Fields]] = []
    for chunk in range(len(dataset.chunks.num_rows)):
        samples: Sequence[RawSample | SampleError] = dataset.read_chunk(chunk)
        for sample in samples:
            fields = fields_of(sample)
            assert isinstance(sample, RawSample)
            found.append((sample.origin.key, fields))
    return found
