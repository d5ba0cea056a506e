"""Whole conversions: what is written, kept, refused, and read afterwards."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import stoker
from stoker import ops
from stoker.convert import Converted, ConvertOptions, ConvertProgress, convert, look
from stoker.errors import AccessError, DataError, NotFoundError, SpecError, StateError
from stoker.formats.open import build_manifest
from stoker.storage.files import FileStore
from support import foreign_data, pictures, shards
from support.records import stored
from support.servers import Bucket


def class_folders(folder: Path, num_files: int = 12) -> dict[str, dict[str, bytes]]:
    """Write pictures in class folders; returns what is expected of each key."""
    found = {}
    for number in range(num_files):
        label = number * 3 // num_files
        path = folder / f"class_{label}" / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pictures.jpeg(number))
        found[f"class_{label}/{number:03d}"] = {"jpg": pictures.jpeg(number), "cls": str(label).encode()}
    return found


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file but the index, which holds times."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".stoker-index")
    }


@pytest.mark.parametrize("to", ["tar", "parquet"])
@pytest.mark.parametrize("seed", [None, 4])
def test_a_folder_of_classes(tmp_path: Path, to: Any, seed: int | None) -> None:
    expected = class_folders(tmp_path / "source")
    options = ConvertOptions(to=to, shard_rows=5, shuffle_seed=seed)
    made = convert(tmp_path / "source", tmp_path / "made", options)
    assert (made.num_shards, made.num_rows, made.shards_kept, made.skipped) == (3, 12, 0, ())
    source = stoker.tar(made.pattern) if to == "tar" else stoker.parquet(made.pattern)
    found = stored(source)
    assert dict(found) == expected
    assert ([key for key, _ in found] == list(expected)) == (seed is None)
    manifest = json.loads((tmp_path / "made" / "stoker-convert.json").read_text())
    assert manifest["state"] == "done"
    assert manifest["rows"] == 12
    assert manifest["classes"] == {"cls": ["class_0", "class_1", "class_2"]}
    assert [shard["name"] for shard in manifest["shards"]] == [f"shard-{n:06d}.{to}" for n in range(3)]


@pytest.mark.parametrize("to", ["tar", "parquet"])
def test_opening_afterwards_scans_nothing(tmp_path: Path, to: Any) -> None:
    class_folders(tmp_path / "source")
    made = convert(tmp_path / "source", tmp_path / "made", ConvertOptions(to=to, shard_rows=5))
    of = stoker.tar if to == "tar" else stoker.parquet
    for pattern in (made.pattern, f"{tmp_path}/made/*.{to}"):
        built = build_manifest(of(pattern))
        assert (built.num_scanned, built.num_kept) == (0, 3)


def test_the_index_is_what_stoker_index_makes(tmp_path: Path) -> None:
    class_folders(tmp_path / "source")
    made = convert(tmp_path / "source", tmp_path / "made", ConvertOptions(shard_rows=5))
    (ours, _) = sorted((tmp_path / "made").glob(".stoker-index-*"))
    before = {path: path.read_bytes() for path in (tmp_path / "made").glob(".stoker-index-*")}
    for path in before:
        path.unlink()
    build_manifest(stoker.tar(made.pattern))
    build_manifest(stoker.tar(f"{tmp_path}/made/*.tar"))
    assert {path: path.read_bytes() for path in before} == before
    assert ours in before


def test_a_loader_reads_what_was_made(tmp_path: Path) -> None:
    class_folders(tmp_path / "source")
    made = convert(tmp_path / "source", tmp_path / "made", ConvertOptions(shard_rows=5, shorter_side=32))
    steps = [ops.DecodeImage("jpg"), ops.Resize("jpg", (16, 16)), ops.Label("cls")]
    pipeline = stoker.Pipeline(stoker.tar(made.pattern), steps, batch_size=4)
    with stoker.DataLoader(pipeline, output="numpy", num_threads=1) as loader:
        labels = np.concatenate([np.asarray(batch["cls"]) for batch in loader])
    assert sorted(labels.tolist()) == [0] * 4 + [1] * 4 + [2] * 4


def test_a_second_run_keeps_every_shard_and_a_damaged_one_is_made_again(tmp_path: Path) -> None:
    class_folders(tmp_path / "source")
    options = ConvertOptions(shard_rows=5, shuffle_seed=1)
    convert(tmp_path / "source", tmp_path / "made", options)
    before = files_of(tmp_path / "made")
    assert convert(tmp_path / "source", tmp_path / "made", options).shards_kept == 3
    damaged = bytearray(before["shard-000001.tar"])
    damaged[700] ^= 1
    (tmp_path / "made" / "shard-000001.tar").write_bytes(damaged)
    (tmp_path / "made" / "shard-000002.tar").unlink()
    (tmp_path / "made" / ".stoker-convert" / "shard-000000.json").write_text("{")
    assert convert(tmp_path / "source", tmp_path / "made", options).shards_kept == 0
    assert files_of(tmp_path / "made") == before


def test_other_settings_and_a_changed_source_are_refused(tmp_path: Path) -> None:
    class_folders(tmp_path / "source")
    convert(tmp_path / "source", tmp_path / "made", ConvertOptions(shard_rows=5))
    before = files_of(tmp_path / "made")
    with pytest.raises(StateError, match=r"other settings: shard_rows 5 there, 6 now; shuffle_seed None there, 1 now"):
        convert(tmp_path / "source", tmp_path / "made", ConvertOptions(shard_rows=6, shuffle_seed=1))
    (tmp_path / "source" / "class_0" / "new.jpg").write_bytes(pictures.jpeg())
    with pytest.raises(StateError, match="the source has changed"):
        convert(tmp_path / "source", tmp_path / "made", ConvertOptions(shard_rows=5))
    assert files_of(tmp_path / "made") == before


def test_a_folder_with_shards_of_others_is_refused(tmp_path: Path) -> None:
    class_folders(tmp_path / "source")
    shards.make_shards(tmp_path / "made", (3,), images=False)
    with pytest.raises(SpecError, match=r"shard-0000\.tar and no stoker-convert\.json"):
        convert(tmp_path / "source", tmp_path / "made")


@pytest.mark.parametrize("to", ["tar", "parquet"])
def test_bad_records_stop_the_run_or_are_left_out_and_listed(tmp_path: Path, to: Any) -> None:
    class_folders(tmp_path / "source")
    bad = tmp_path / "source" / "class_1" / "bad.jpg"
    bad.write_bytes(b"no picture")
    options: dict[str, Any] = {"to": to, "shard_rows": 4, "shorter_side": 24}
    with pytest.raises(DataError, match=r"bad\.jpg .*found 10 bytes that begin with b'no picture'.*--on-error skip"):
        convert(tmp_path / "source", tmp_path / "made", ConvertOptions(**options))
    made = convert(tmp_path / "source", tmp_path / "made", ConvertOptions(**options, on_error="skip"))
    assert made.num_rows == 12
    (skipped,) = made.skipped
    assert (skipped.url, skipped.key) == (f"file://{bad}", "class_1/bad")
    assert "expected a picture in 'jpg'" in skipped.reason
    listed = json.loads((tmp_path / "made" / "stoker-convert.json").read_text())["skipped"]
    assert [entry["url"] for entry in listed] == [skipped.url]
    with pytest.raises(DataError, match="--on-error skip"):
        convert(tmp_path / "source", tmp_path / "made", ConvertOptions(**options))


def test_a_shard_of_nothing_but_bad_records_is_not_there(tmp_path: Path) -> None:
    path = foreign_data.write_tfrecords(tmp_path / "a.tfrecord", [b"\xff"] * 2 + [foreign_data.example(x=[1])] * 3)
    options = ConvertOptions(on_error="skip", shard_rows=2, kind="tfrecord")
    for kept in (0, 3):
        made = convert(path, tmp_path / "made", options)
        assert (made.num_shards, made.num_rows, len(made.skipped), made.shards_kept) == (2, 3, 2, kept)
        assert made.pattern.endswith("/*.tar")
        assert [fields for _, fields in stored(stoker.tar(made.pattern))] == [{"x": b"1"}] * 3


def test_what_is_lost_of_a_broken_file_stops_the_run_or_is_listed(tmp_path: Path) -> None:
    good = foreign_data.frame(foreign_data.example(x=[1]))
    (tmp_path / "a.tfrecord").write_bytes(good * 2 + b"\0" * 20)
    with pytest.raises(DataError, match=r"no record at byte .*--on-error skip"):
        convert(tmp_path / "a.tfrecord", tmp_path / "made")
    made = convert(tmp_path / "a.tfrecord", tmp_path / "made", ConvertOptions(on_error="skip"))
    assert made.num_rows == 2
    assert "no record at byte" in made.skipped[0].reason


def test_a_cut_tar_stops_the_run_or_is_listed(tmp_path: Path) -> None:
    (whole,) = shards.make_shards(tmp_path / "source", (5,), images=False)
    whole.write_bytes(whole.read_bytes()[:6000])
    with pytest.raises(DataError, match=r"the shard is cut at byte 6000.*--on-error skip"):
        convert(tmp_path / "source", tmp_path / "made")
    made = convert(tmp_path / "source", tmp_path / "made", ConvertOptions(on_error="skip"))
    assert 0 < made.num_rows < 5
    assert "is cut at byte 6000" in made.skipped[0].reason


def test_a_file_that_may_not_be_read_is_no_bad_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class_folders(tmp_path / "source")
    with monkeypatch.context() as patched:
        patched.setattr("stoker.storage.open.FileStore", Refusing)
        with pytest.raises(AccessError, match="no permission"):
            convert(tmp_path / "source", tmp_path / "made", ConvertOptions(on_error="skip"))


def test_a_destination_with_signs_of_patterns(tmp_path: Path) -> None:
    class_folders(tmp_path / "source")
    made = convert(tmp_path / "source", tmp_path / "m{a}[d]*e", ConvertOptions(shard_rows=5))
    assert len(stored(stoker.tar(made.pattern))) == 12


def test_class_folders_can_be_left_alone(tmp_path: Path) -> None:
    class_folders(tmp_path / "source", 3)
    (tmp_path / "source" / "loose.jpg").write_bytes(pictures.jpeg())
    with pytest.raises(DataError, match="files in class folders and files beside them"):
        convert(tmp_path / "source", tmp_path / "made")
    made = convert(tmp_path / "source", tmp_path / "made", ConvertOptions(labels="none"))
    assert {tuple(fields) for _, fields in stored(stoker.tar(made.pattern))} == {("jpg",)}


def test_records_of_one_key_stay_apart(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for name in ("a.jpg", "a.png", "a.b.jpg"):
        (tmp_path / "source" / name).write_bytes(pictures.png() if name.endswith("png") else pictures.jpeg())
    made = convert(tmp_path / "source", tmp_path / "made")
    assert {key: list(fields) for key, fields in stored(stoker.tar(made.pattern))} == {
        "a": ["jpg"],
        "a~2": ["png"],
        "a%2Eb": ["jpg"],
    }


def test_tars_become_parquet_and_tars_again(tmp_path: Path) -> None:
    shards.make_shards(tmp_path / "source", (7, 11, 2))
    expected = stored(stoker.tar(f"{tmp_path}/source/*.tar"))
    first = convert(tmp_path / "source", tmp_path / "parquet", ConvertOptions(to="parquet", shard_rows=8))
    second = convert(tmp_path / "parquet", tmp_path / "tar", ConvertOptions(shard_rows=9))
    assert (first.kind, second.kind) == ("tar", "hugging-face")
    assert stored(stoker.tar(second.pattern)) == expected


def test_tars_in_folders_below_and_in_gzip(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    shards.make_shards(folder / "a", (2,), images=False)
    shards.make_shards(folder / "b", (3,), images=False)
    packed = folder / "b" / "shard-0000.tar"
    (folder / "b" / "shard-0000.tar.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that gzip is slow
        assert convert(folder, tmp_path / "made").num_rows == 5


def test_the_number_of_workers_changes_nothing(tmp_path: Path) -> None:
    foreign_data.hub(tmp_path / "source", pa.table({"x": pa.array(range(40))}), rows_per_group=7)
    found = []
    for workers in (1, 2, 5):
        folder = tmp_path / f"made-{workers}"
        convert(tmp_path / "source", folder, ConvertOptions(workers=workers, shard_rows=6, shuffle_seed=2))
        found.append(files_of(folder))
    assert found[0] == found[1] == found[2]


def test_a_look_says_what_would_be_made_and_makes_nothing(tmp_path: Path) -> None:
    foreign_data.hub(tmp_path / "source", pa.table({"x": pa.array(range(40))}), rows_per_group=7)
    seen = look(tmp_path / "source", ConvertOptions(shard_rows=16, shuffle_seed=0))
    made = convert(tmp_path / "source", tmp_path / "made", ConvertOptions(shard_rows=16, shuffle_seed=0))
    assert (seen.kind, seen.num_rows, seen.shard_rows) == ("hugging-face", 40, (16, 16, 8))
    assert seen.note == made.note
    assert "reads nearly all of the source" in seen.note
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "source"]


def test_progress_counts_up_to_all(tmp_path: Path) -> None:
    class_folders(tmp_path / "source")
    seen: list[ConvertProgress] = []
    for _ in range(2):
        seen.clear()
        convert(tmp_path / "source", tmp_path / "made", ConvertOptions(shard_rows=5), on_progress=seen.append)
        assert seen[-1].rows_done == seen[-1].num_rows == 12
        assert seen[-1].shards_done == seen[-1].num_shards == 3
    assert seen[-1].shards_kept == 3


def test_a_destination_inside_the_source(tmp_path: Path) -> None:
    class_folders(tmp_path)
    for destination in (tmp_path, tmp_path / "made"):
        with pytest.raises(SpecError, match="lies in the source"):
            convert(tmp_path, destination)


def test_an_empty_source_and_a_web_server(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match="nothing lies below"):
        convert(tmp_path / "empty", tmp_path / "made")
    (tmp_path / "a.tfrecord").write_bytes(b"")
    with pytest.raises(SpecError, match="holds no record"):
        convert(tmp_path / "a.tfrecord", tmp_path / "made", ConvertOptions(kind="tfrecord"))
    with pytest.raises(SpecError, match="web server"):
        convert(tmp_path, "https://example.org/made")


class Refusing(FileStore):
    """A disk with one picture that may not be read."""

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        if url.endswith("007.jpg"):
            raise AccessError(f"no permission for {url}")
        return super().read(url, start, stop, version)


class Flipping(FileStore):
    """A disk that changes a byte of every shard that is written."""

    def write(self, url: str, payload: bytes) -> None:
        damaged = bytearray(payload)
        if url.endswith(".tar"):
            damaged[600] ^= 1
        super().write(url, bytes(damaged))


def test_what_the_store_changed_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class_folders(tmp_path / "source")
    with monkeypatch.context() as patched:
        patched.setattr("stoker.storage.open.FileStore", Flipping)
        with pytest.raises(OSError, match="what was read back is not what was written"):
            convert(tmp_path / "source", tmp_path / "made")
    assert not (tmp_path / "made" / ".stoker-convert").exists()


def test_bad_options() -> None:
    with pytest.raises(SpecError, match="shard_bytes must be at least 1"):
        ConvertOptions(shard_bytes=0)
    with pytest.raises(SpecError, match=r"quality is 101; expected 1\.\.100"):
        ConvertOptions(quality=101)
    with pytest.raises(SpecError, match="did you mean 'shard_rows'"):
        ConvertOptions(shard_row=3)  # type: ignore[call-arg]


def test_from_a_bucket_into_a_bucket(s3_bucket: Bucket, tmp_path: Path) -> None:
    expected = class_folders(tmp_path)
    objects = {f"source/{path.relative_to(tmp_path)}": path.read_bytes() for path in tmp_path.rglob("*.jpg")}
    s3_bucket.put_many(objects)
    options = ConvertOptions(shard_rows=5, storage_options=dict(s3_bucket.storage_options), workers=2)
    made: Converted | None = None
    for kept in (0, 3):
        made = convert(f"{s3_bucket.url}/source", f"{s3_bucket.url}/made", options)
        assert (made.num_rows, made.num_shards, made.shards_kept) == (12, 3, kept)
    assert made is not None
    source = stoker.tar(made.pattern, storage_options=dict(s3_bucket.storage_options))
    assert dict(stored(source)) == expected
    assert build_manifest(source).num_scanned == 0
