"""What a loader promises, on a local disk, S3 (moto) and GCS (fake-gcs-server), with the same data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import ops
from stoker.errors import NotFoundError
from stoker.testing import assert_equal_batches, assert_exactly_once, assert_resumable, keys_of
from support.loading import batches_of, load
from support.shards import samples, tar_bytes

ROWS = (7, 11, 2, 9)
SHARDS = samples(ROWS)
OBJECTS = {f"train/shard-{index:04d}.tar": tar_bytes(shard) for index, shard in enumerate(SHARDS)}
KEYS = [key for shard in SHARDS for key, _ in shard]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the shards lie, and how to put more there."""

    url: str
    options: Mapping[str, str] | None
    put: Callable[[str, bytes], object]

    def pipeline(self, pattern: str = "train/shard-{0000..0003}.tar", **settings: Any) -> stoker.Pipeline:
        options = None if self.options is None else dict(self.options)
        source = stoker.tar(f"{self.url}/{pattern}", storage_options=options, chunk_bytes=8192)
        steps = [ops.DecodeImage("jpg", to="image"), ops.RandomResizedCrop("image", 16), ops.Label("cls")]
        return stoker.Pipeline(source, steps, **{"batch_size": 4, "shuffle": True, "window": 3, **settings})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index goes here where it cannot lie beside the data."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(params=["file", "s3", "gs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "file":
        made = _on_disk(tmp_path)
    else:
        bucket = request.getfixturevalue({"s3": "s3_bucket", "gs": "gcs_bucket"}[request.param])
        made = Place(bucket.url, bucket.storage_options, bucket.put)
    for name, content in OBJECTS.items():
        made.put(name, content)
    return made


def _on_disk(folder: Path) -> Place:
    def put(name: str, content: bytes) -> None:
        path = folder / "disk" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return Place(f"file://{folder}/disk", None, put)


@pytest.mark.parametrize("world_size", [1, 3])
def test_each_sample_exactly_once(place: Place, world_size: int) -> None:
    pipeline = place.pipeline(tail="pad")
    assert_exactly_once(lambda rank, size: load(pipeline, rank, size), world_size, KEYS, epoch=1)


def test_a_resume_equals_the_rest(place: Place) -> None:
    pipeline = place.pipeline()
    assert_resumable(lambda rank, size: load(pipeline, rank, size), steps=[0, 1, 3, 7, 8], epoch=1)


def test_batches_are_those_of_a_local_disk(place: Place, tmp_path: Path) -> None:
    local = _on_disk(tmp_path / "reference")
    for name, content in OBJECTS.items():
        local.put(name, content)
    assert_equal_batches(batches_of(place.pipeline()), batches_of(local.pipeline()))


def test_a_state_of_another_place_fits(place: Place, tmp_path: Path) -> None:
    local = _on_disk(tmp_path / "reference")
    for name, content in OBJECTS.items():
        local.put(name, content)
    with load(local.pipeline()) as loader:
        seen = keys_of([next(iter(loader))])
        state = loader.state_dict()
    with load(place.pipeline()) as loader:
        loader.load_state_dict(state)
        assert sorted(seen + keys_of(loader)) == sorted(KEYS)


def test_a_glob_finds_what_braces_name(place: Place) -> None:
    globbed = batches_of(place.pipeline("train/*.tar"))
    assert_equal_batches(globbed, batches_of(place.pipeline()))


def test_a_second_opening_scans_nothing(place: Place) -> None:
    """The index that the first opening made is found again, beside the data or in the cache folder."""
    with load(place.pipeline()) as loader:
        expected = list(loader)
    place.put("train/shard-0004.tar", tar_bytes([("new", SHARDS[0][0][1])]))
    with load(place.pipeline()) as loader:
        assert_equal_batches(list(loader), expected)
    with load(place.pipeline("train/shard-{0000..0004}.tar", tail="pad")) as loader:
        assert sorted(keys_of(loader)) == sorted([*KEYS, "new"])


def test_a_changed_shard_is_indexed_again(place: Place) -> None:
    batches_of(place.pipeline())
    place.put("train/shard-0002.tar", tar_bytes([("new", SHARDS[0][0][1])]))
    expected = [key for key in KEYS if not key.startswith("s02")]
    assert sorted(keys_of(batches_of(place.pipeline()))) == sorted([*expected, "new"])


def test_a_missing_shard_is_named(place: Place) -> None:
    with pytest.raises(NotFoundError, match=r"train/shard-0004\.tar"):
        load(place.pipeline("train/shard-{0000..0004}.tar"))


def test_a_folder_of_pictures(place: Place) -> None:
    for index, (key, fields) in enumerate(SHARDS[0]):
        place.put(f"pictures/class-{index % 2}/{key}.jpg", fields["jpg"])
    options = None if place.options is None else dict(place.options)
    source = stoker.files(f"{place.url}/pictures/", storage_options=options)
    steps = [ops.DecodeImage("jpg", to="image"), ops.Label("cls")]
    (batch,) = batches_of(stoker.Pipeline(source, steps, batch_size=7, lanes=1))
    assert batch["image"].shape == (7, 48, 64, 3)
    assert batch["cls"].tolist() == [0, 0, 0, 0, 1, 1, 1]
