"""``stoker convert``: what it prints and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import stoker
from stoker.errors import DataError, StokerError
from stoker_service.cli import Session, build_app
from support import foreign_data, pictures
from support.records import stored


def ran(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(build_app(Session()), ["convert", *map(str, arguments)])
    if isinstance(result.exception, StokerError):
        raise result.exception
    return result.exit_code, result.output


def source(tmp_path: Path, num_records: int = 10) -> Path:
    records = [foreign_data.example(image=pictures.jpeg(n), label=[n]) for n in range(num_records)]
    return foreign_data.write_tfrecords(tmp_path / "source" / "a.tfrecord", records).parent


def test_it_says_what_was_made_and_how_to_open_it(tmp_path: Path) -> None:
    code, said = ran(source(tmp_path), tmp_path / "made", "--shard-rows", 4, "--workers", 2)
    assert code == 0
    assert "10 records in 3 shards" in said
    pattern = f"file://{tmp_path}/made/shard-{{000000..000002}}.tar"
    assert f"open with: stoker.tar({pattern!r})" in said
    assert [fields["cls"] for _, fields in stored(stoker.tar(pattern))] == [str(n).encode() for n in range(10)]


def test_a_dry_run_makes_nothing(tmp_path: Path) -> None:
    folder = source(tmp_path)
    code, said = ran(folder, tmp_path / "made", "--shard-rows", "4", "--dry-run")
    assert code == 0
    assert "tfrecord: 10 records" in said
    assert "would make 3 tar shards of 2 to 4 records" in said
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    found = json.loads(ran(folder, tmp_path / "made", "--shard-rows", "4", "--dry-run", "--json")[1])
    assert found["shard_rows"] == [4, 4, 2]


def test_json(tmp_path: Path) -> None:
    arguments = [source(tmp_path), tmp_path / "made", "--json", "--to", "parquet", "--columns", "label"]
    found = json.loads(ran(*arguments)[1])
    assert (found["from"], found["to"], found["rows"], found["kept"], found["skipped"]) == (
        "tfrecord",
        "parquet",
        10,
        0,
        [],
    )
    assert json.loads(ran(*arguments)[1])["kept"] == 1


def test_bad_records_are_named_or_left_out(tmp_path: Path) -> None:
    folder = source(tmp_path)
    foreign_data.write_tfrecords(folder / "b.tfrecord", [b"\xff\xff"])
    with pytest.raises(DataError, match=r"b\.tfrecord row 0"):
        ran(folder, tmp_path / "made")
    code, said = ran(folder, tmp_path / "made", "--on-error", "skip")
    assert code == 0
    assert "1 bad records left out" in said
    assert "b.tfrecord row 0: no tf.train.Example" in said


def test_wrong_usage(tmp_path: Path) -> None:
    assert ran(source(tmp_path), tmp_path / "made", "--shard-bytes", "much")[0] == 2
    assert ran(source(tmp_path), tmp_path / "made", "--quality", "0")[0] == 2
    assert ran(source(tmp_path), tmp_path / "made", "--from", "zip")[0] == 2
