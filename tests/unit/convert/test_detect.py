"""What lies at a source is found out, or said."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from stoker.convert.detect import open_records
from stoker.convert.options import ConvertOptions
from stoker.errors import NotFoundError, SpecError
from support import foreign_data, pictures, shards


def kind_of(source: Path | str, **options: object) -> str:
    return open_records(str(source), ConvertOptions(**options)).kind  # type: ignore[arg-type]


def test_every_kind_is_known_by_its_folder(tmp_path: Path) -> None:
    shards.make_shards(tmp_path / "tar", (2, 3), images=False)
    (tmp_path / "files" / "a").mkdir(parents=True)
    (tmp_path / "files" / "a" / "1.jpg").write_bytes(pictures.jpeg())
    foreign_data.write_mds(tmp_path / "mds", {"x": "bytes"}, [[{"x": b"1"}]], "zstd")
    foreign_data.write_tfrecords(tmp_path / "tfrecord" / "train-00000-of-00001", [b""])
    foreign_data.save_to_disk(tmp_path / "arrow", pa.table({"x": [1]}))
    foreign_data.hub(tmp_path / "parquet", pa.table({"x": [1]}))
    for name in ("tar", "files", "mds", "tfrecord"):
        assert kind_of(tmp_path / name) == name
        assert kind_of(f"{tmp_path / name}/", kind=name) == name
    assert kind_of(tmp_path / "arrow") == kind_of(tmp_path / "parquet") == "hugging-face"


def test_patterns_and_single_files(tmp_path: Path) -> None:
    shards.make_shards(tmp_path, (2, 3), images=False)
    foreign_data.write_tfrecords(tmp_path / "b.tfrecord", [b""])
    (tmp_path / "list.csv").write_text("1.jpg,3\n")
    (tmp_path / "1.jpg").write_bytes(pictures.jpeg())
    assert kind_of(tmp_path / "shard-{0000..0001}.tar") == "tar"
    assert kind_of(tmp_path / "*.tar") == "tar"
    assert kind_of(tmp_path / "b.tfrecord") == "tfrecord"
    assert kind_of(tmp_path / "list.csv") == "files"


def test_several_kinds_are_counted_and_one_can_be_named(tmp_path: Path) -> None:
    shards.make_shards(tmp_path, (2, 3), images=False)
    (tmp_path / "1.jpg").write_bytes(pictures.jpeg())
    with pytest.raises(SpecError, match=r"1 of files, 2 of tar; name it with --from"):
        kind_of(tmp_path)
    assert kind_of(tmp_path, kind="tar") == "tar"


def test_nothing_that_is_known(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nothing lies below"):
        kind_of(tmp_path)
    (tmp_path / "a.bin").write_bytes(b"x")
    with pytest.raises(SpecError, match="holds 1 files, none of them known"):
        kind_of(tmp_path)
    with pytest.raises(NotFoundError, match=r"no index\.json"):
        kind_of(tmp_path, kind="mds")


def test_splits_of_unnumbered_files_are_not_mixed(tmp_path: Path) -> None:
    for name in ("train.parquet", "test.parquet"):
        (tmp_path / name).write_bytes(b"PAR1")
    with pytest.raises(SpecError, match="several splits: test, train"):
        kind_of(tmp_path)
    (tmp_path / "test.parquet").rename(tmp_path / "training.parquet.old")
    assert kind_of(tmp_path) == "hugging-face"


def test_a_pattern_of_pictures_or_mds(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(pictures.jpeg())
    with pytest.raises(SpecError, match="of files data give the folder"):
        kind_of(tmp_path / "*.jpg")


def test_any_files_of_given_extensions(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"x")
    assert kind_of(tmp_path, kind="files", extensions=("bin",)) == "files"
