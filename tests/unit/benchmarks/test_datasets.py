"""The photographs' shards are the same bytes each time, whole, and like ImageNet in size."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stoker.errors import DataError, SpecError
from stoker_bench import datasets, photographs, pictures
from stoker_bench.datasets import PhotoShards
from support import pictures as small

WANTED = PhotoShards(num_shards=2, rows_per_shard=6, seed=3)


def members(shard: Path) -> dict[str, bytes]:
    with tarfile.open(shard) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]  # all are files


def test_the_same_scenario_gives_the_same_bytes_whatever_the_threads(tmp_path: Path) -> None:
    one = datasets.make(WANTED, tmp_path / "one", num_threads=1)
    two = datasets.make(WANTED, tmp_path / "two", num_threads=2)
    assert [a.read_bytes() for a in one.shards] == [b.read_bytes() for b in two.shards]
    other = datasets.make(PhotoShards(2, 6, seed=4), tmp_path / "other")
    assert one.shards[0].read_bytes() != other.shards[0].read_bytes()


def test_a_shard_holds_a_label_and_a_photograph_per_key(tmp_path: Path) -> None:
    made = datasets.make(WANTED, tmp_path)
    found = [members(shard) for shard in made.shards]
    assert made.num_rows == sum(len(shard) for shard in found) // 2 == 12
    for name, payload in {**found[0], **found[1]}.items():
        key, field = name.split(".")
        if field == "cls":
            assert int(payload) == int(key[:4]) < made.num_classes
        else:
            image = Image.open(io.BytesIO(payload))
            image.load()
            assert image.format == "JPEG"
            assert 160 <= min(image.size) <= max(image.size) <= 1024


def test_made_shards_are_used_again_and_a_changed_one_is_found(tmp_path: Path) -> None:
    rows: list[int] = []
    made = datasets.make(WANTED, tmp_path, progress=rows.append)
    datasets.make(WANTED, tmp_path, progress=rows.append)
    assert rows == [6, 6]
    made.shards[1].write_bytes(made.shards[1].read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"shard-000001\.tar: SHA-256"):
        datasets.make(WANTED, tmp_path)


def test_another_scenario_in_the_same_folder_replaces_the_shards(tmp_path: Path) -> None:
    datasets.make(WANTED, tmp_path)
    made = datasets.make(PhotoShards(1, 4), tmp_path)
    assert len(members(made.shards[0])) == 8


def test_by_class_sorts_the_labels(tmp_path: Path) -> None:
    labels = [datasets.label(PhotoShards(4, 25, by_class=True), number, 10) for number in range(100)]
    assert labels == sorted(labels)
    assert np.bincount(labels).tolist() == [10] * 10


def test_a_folder_of_pictures_adds_classes(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.jpg").write_bytes(small.jpeg(1, 300, 200))
    (tmp_path / "mine" / "too-small.jpg").write_bytes(small.jpeg(1))
    made = datasets.make(PhotoShards(1, 4, extra_folder=str(tmp_path / "mine")), tmp_path / "made")
    assert made.num_classes == len(photographs.shipped()) + 1
    with pytest.raises(SpecError, match="no picture of at least 200 pixels"):
        photographs.from_folder(tmp_path / "made")


def test_sizes_and_bytes_are_like_imagenet() -> None:
    sizes = np.array([pictures.draw_size(pictures.generator(0, number)) for number in range(4000)])
    assert abs(sizes[:, 0].mean() - 473) < 25  # ImageNet's mean is 473 × 406
    assert abs(sizes[:, 1].mean() - 406) < 25
    source = photographs.shipped()[0]
    mean_bytes = np.mean([len(pictures.jpeg(source, 0, number)) for number in range(40)])
    assert 45_000 < mean_bytes < 110_000
