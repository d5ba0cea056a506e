"""What `stoker convert` promises, whatever the source, the settings, the workers, and wherever it is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker.convert import Converted, ConvertOptions, ConvertProgress, convert
from stoker.convert.fields import extension_of
from support import foreign_data, shards
from support.commands import ROOTS
from support.records import Fields, stored

Records = list[Fields]

MAX_KILLS = 3
KILL_S = 100.0

values = st.binary(max_size=700).filter(lambda value: extension_of(value) is None)  # these are named otherwise
records = st.lists(
    st.fixed_dictionaries({"a": values}, optional={"b.bin": values, "c": values}), min_size=1, max_size=25
)
options = st.builds(
    ConvertOptions,
    to=st.sampled_from(["tar", "parquet"]),
    shard_bytes=st.sampled_from([1, 3000, 9000, 1 << 20]),
    shard_rows=st.one_of(st.none(), st.integers(1, 9)),
    shuffle_seed=st.one_of(st.none(), st.integers(-5, 5)),
    workers=st.integers(1, 4),
)


def write_tar(folder: Path, made: Records) -> None:
    named = [(f"k{number:03d}", fields) for number, fields in enumerate(made)]
    for number in range(0, len(named), 10):
        shards.write_tar(folder / f"{number:03d}.tar", named[number : number + 10])


def write_mds(folder: Path, made: Records) -> None:
    whole = [{name: fields.get(name, b"") for name in ("a", "b.bin", "c")} for fields in made]
    columns = dict.fromkeys(("a", "b.bin", "c"), "bytes")
    split = [whole[start : start + 8] for start in range(0, len(whole), 8)]
    foreign_data.write_mds(folder, columns, split, "zstd" if len(made) % 2 else None)


def write_tfrecord(folder: Path, made: Records) -> None:
    encoded = [foreign_data.example(**fields) for fields in made]
    for number in range(0, len(encoded), 9):
        foreign_data.write_tfrecords(folder / f"x-{number:03d}.tfrecord", encoded[number : number + 9])


def hf_table(made: Records) -> pa.Table:
    return pa.table(
        {name: pa.array([fields.get(name) for fields in made], pa.binary()) for name in ("a", "b.bin", "c")}
    )


def write_arrow(folder: Path, made: Records) -> None:
    foreign_data.save_to_disk(folder, hf_table(made), num_files=2)


def write_parquet(folder: Path, made: Records) -> None:
    foreign_data.hub(folder, hf_table(made), num_files=2)


WRITERS: dict[str, Callable[[Path, Records], None]] = {
    "tar": write_tar,
    "mds": write_mds,
    "tfrecord": write_tfrecord,
    "arrow": write_arrow,
    "parquet": write_parquet,
}


def expected_of(kind: str, made: Records) -> Records:
    """MDS has every column in every sample."""
    return [{"a": b"", "b.bin": b"", "c": b"", **fields} for fields in made] if kind == "mds" else made


@contextmanager
def folders() -> Iterator[tuple[Path, Path]]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name) / "source", Path(name) / "made"


def read_back(made: Converted) -> list[Fields]:
    of = stoker.tar if made.to == "tar" else stoker.parquet
    return [fields for _, fields in stored(of(made.pattern))]


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file but the index, which holds times."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".stoker-")
    }


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(WRITERS)), records, options)
def test_every_record_is_in_the_shards_once_with_equal_bytes(kind: str, made: Records, wanted: ConvertOptions) -> None:
    with folders() as (source, destination):
        WRITERS[kind](source, made)
        found = read_back(convert(source, destination, wanted))
        expected = expected_of(kind, made)
        if wanted.shuffle_seed is None:
            assert found == expected
        assert sorted(map(sorted_items, found)) == sorted(map(sorted_items, expected))


def sorted_items(fields: Fields) -> list[tuple[str, bytes]]:
    return sorted(fields.items())


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(WRITERS)), records, options, st.integers(1, 4))
def test_the_number_of_workers_changes_no_byte(kind: str, made: Records, wanted: ConvertOptions, workers: int) -> None:
    with folders() as (source, destination):
        WRITERS[kind](source, made)
        other = destination.with_name("other")
        convert(source, destination, wanted)
        convert(source, other, replace(wanted, workers=workers))
        assert files_of(other) == files_of(destination)


class StoppedError(Exception):
    """What the user's Ctrl-C is to a test."""


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(WRITERS)), records, options, st.lists(st.integers(1, 30), max_size=3))
def test_a_run_that_was_interrupted_ends_like_one_that_was_not(
    kind: str, made: Records, wanted: ConvertOptions, stops: list[int]
) -> None:
    with folders() as (source, destination):
        WRITERS[kind](source, made)
        whole = destination.with_name("whole")
        convert(source, whole, wanted)
        for stop in stops:
            left = stop

            def interrupt(_: ConvertProgress) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    raise StoppedError

            try:
                convert(source, destination, wanted, on_progress=interrupt)
            except StoppedError:
                continue
        convert(source, destination, wanted)
        assert files_of(destination) == files_of(whole)


PROGRAM = """
import itertools, os, signal, sys
from stoker.convert import ConvertOptions, convert
from stoker.storage import files, open as opening

source, destination, last, to = sys.argv[1:]
counter = itertools.count(1)


class Dying(files.FileStore):
    def head(self, url):
        die(url)
        return super().head(url)

    def read(self, url, *rest):
        die(url)
        return super().read(url, *rest)

    def write(self, url, payload):
        die(url)
        super().write(url, payload)
        die(url)


def die(url):
    global counted
    counted = next(counter)
    if counted == int(last):
        os.kill(os.getpid(), signal.SIGKILL)


counted = 0
opening.FileStore = Dying
convert(source, destination, ConvertOptions(to=to, shard_rows=4, shuffle_seed=3, workers=2))
print(counted)
"""


def killed_at(operation: int, source: Path, destination: Path, to: str) -> subprocess.CompletedProcess[str]:
    """A conversion in a process of its own that dies at this operation of its store; 0 for never."""
    command = [sys.executable, "-c", PROGRAM, str(source), str(destination), str(operation), to]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(ROOTS)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=KILL_S)


@pytest.mark.parametrize("to", ["tar", "parquet"])
def test_a_killed_process_is_gone_on_with(tmp_path: Path, to: Any) -> None:
    """Killed at operations all over the run, each time in what the one before has left."""
    made: Records = [{"a": bytes([number]) * 300, "c": str(number).encode()} for number in range(30)]
    write_tfrecord(tmp_path / "source", made)
    whole = killed_at(0, tmp_path / "source", tmp_path / "whole", to)
    assert whole.returncode == 0, whole.stderr
    total = int(whole.stdout)
    seed = random.randrange(1 << 30)
    chosen = sorted(random.Random(seed).sample(range(5, total), MAX_KILLS))
    num_killed = 0
    for operation in chosen:
        ended = killed_at(operation, tmp_path / "source", tmp_path / "made", to)
        assert ended.returncode in (-signal.SIGKILL, 0), (seed, ended.stderr)
        num_killed += ended.returncode != 0
    assert num_killed, seed
    last = convert(tmp_path / "source", tmp_path / "made", ConvertOptions(to=to, shard_rows=4, shuffle_seed=3))
    assert files_of(tmp_path / "made") == files_of(tmp_path / "whole"), seed
    assert sorted(map(sorted_items, read_back(last))) == sorted(map(sorted_items, made))
