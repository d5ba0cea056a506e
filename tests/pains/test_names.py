"""Which part of a file's name is key and which is field (pain 43)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import ops
from stoker.errors import SampleError
from support import pictures
from support.loading import batches_of, tar_of
from support.shards import tar_bytes

FIRST_DOT = {("dir.v1/22", "05.seg.png"), ("dir.v1/song 2", "0 (x).mp3"), ("dir.v1/ünï", "jpg")}
LAST_DOT = {("dir.v1/22.05.seg", "png"), ("dir.v1/song 2.0 (x)", "mp3"), ("dir.v1/ünï", "jpg")}
NAMES = ("dir.v1/22.05.seg.png", "dir.v1/song 2.0 (x).mp3", "dir.v1/.hidden.jpg", "dir.v1/ünï.JPG", "dir.v1/README")


def dotted(folder: Path) -> str:
    """A tar with one member of each name; a name's text is its content."""
    parts = [name.rpartition(".") if "." in name.rpartition("/")[2] else ("", "", name) for name in NAMES]
    samples = [(base, {ending: name.encode()}) for (base, _, ending), name in zip(parts, NAMES, strict=True) if base]
    path = folder / "a.tar"
    tar_of(path, samples)
    return str(path)


def fields_of(source: Any) -> set[tuple[str, str]]:
    """Each (key, field) that comes out, in batches of one, because the fields differ."""
    pipeline = stoker.Pipeline(source, [], batch_size=1, lanes=1)
    found: set[tuple[str, str]] = set()
    for batch in batches_of(pipeline):
        (key,) = batch["__key__"]
        names = [name for name in batch if not name.startswith("__")]
        assert all(batch[name] != [None] for name in names)
        found.update((key, name) for name in names)
    return found


def test_the_first_dot_of_the_base_name_ends_the_key(tmp_path: Path) -> None:
    """Pain 43: by default WebDataset's rule holds, on the base name; hidden files are no samples."""
    assert fields_of(stoker.tar(dotted(tmp_path))) == FIRST_DOT


def test_the_last_dot_ends_the_key_when_told_to(tmp_path: Path) -> None:
    """Pain 43: with ``keys="last-dot"`` the field is what follows the last dot."""
    assert fields_of(stoker.tar(dotted(tmp_path), keys="last-dot")) == LAST_DOT


def test_fields_of_a_dotted_name_can_be_asked_for(tmp_path: Path) -> None:
    """Pain 43: a field's name may hold dots, and its content is the member's."""
    steps = [ops.DecodeImage("05.seg.png", to="mask"), ops.Select("mask")]
    (tmp_path / "b.tar").write_bytes(tar_bytes([("dir.v1/22", {"05.seg.png": pictures.png(1)})]))
    (batch,) = batches_of(stoker.Pipeline(stoker.tar(tmp_path / "b.tar"), steps, batch_size=1))
    assert (batch["mask"] == pictures.pixels(1)).all()


def test_a_field_that_went_elsewhere_is_an_error(tmp_path: Path) -> None:
    """Pain 43: asking for a field that the rule puts under another name is an error that shows it, never None."""
    pipeline = stoker.Pipeline(stoker.tar(dotted(tmp_path)), [ops.DecodeImage("png", to="image")], batch_size=1)
    with pytest.raises(SampleError, match=r"no field 'png'.*05\.seg\.png"):
        batches_of(pipeline)


def test_a_folder_of_files_follows_the_same_rule_for_what_is_hidden(tmp_path: Path) -> None:
    """Pain 43: dots in folders and names of single files lose nothing; hidden files are no samples."""
    folder = tmp_path / "root.v2"
    for name in ("dir.v1/22.05.seg.png", "dir.v1/song 2.0 (x).jpg", "dir.v1/.hidden.jpg", "b/plain.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(pictures.png(3))
    steps = [ops.DecodeImage("png;jpg", to="image"), ops.Label("cls")]
    (batch,) = batches_of(stoker.Pipeline(stoker.files(folder), steps, batch_size=3, lanes=1))
    assert len(set(batch["__key__"])) == 3
    assert sorted(batch["cls"].tolist()) == [0, 1, 1]
    assert not [key for key in batch["__key__"] if "hidden" in key]
