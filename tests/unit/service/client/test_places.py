"""Relative paths on their way to a worker, which runs in another folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import stoker
from stoker.storage.patterns import expand
from stoker_service.client.places import with_absolute_paths
from support.loading import numbered


def patterns_of(*patterns: str) -> tuple[str, ...]:
    source = with_absolute_paths(stoker.Pipeline(stoker.tar(*patterns), [], batch_size=2)).source
    assert isinstance(source, stoker.formats.source.Tar)
    return source.patterns


@pytest.mark.parametrize("folder", ["plain", "odd [1] {a,b} *"])
@pytest.mark.parametrize("pattern", ["x-0.tar", "x-{0..1}.tar", "*.tar", "./x-?.tar", "{x-0,x-1}.tar"])
def test_a_relative_pattern_means_the_same_files_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, pattern: str
) -> None:
    here = tmp_path / folder
    here.mkdir()
    for index in range(2):
        numbered(here / f"x-{index}.tar", 1)
    monkeypatch.chdir(here)
    found, sent = expand([pattern]), patterns_of(pattern)
    monkeypatch.chdir(tmp_path)
    assert expand(sent) == found
    assert len(found) == (1 if pattern == "x-0.tar" else 2)


def test_urls_and_absolute_paths_stay_as_they_are() -> None:
    places = ("/data/x.tar", "s3://bucket/x-{0..9}.tar", "file:///data/x.tar", "file:/data/*.tar", "memory://x")
    assert patterns_of(*places) == places
    assert patterns_of("{/a,s3://b}/x.tar") == ("/a/x.tar", "s3://b/x.tar")


def test_a_home_is_the_trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert patterns_of("~/x.tar") == ("/home/someone/x.tar",)


def test_a_folder_of_pictures_and_a_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = stoker.files("pictures/", manifest="index.parquet")
    found = with_absolute_paths(stoker.Pipeline(source, [], batch_size=2)).source
    assert isinstance(found, stoker.formats.source.Files)
    assert (found.url, found.manifest) == (f"file://{tmp_path}/pictures/", f"file://{tmp_path}/index.parquet")


def test_parquet_patterns_are_as_those_of_tars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = stoker.Pipeline(stoker.parquet("x-*.parquet", "s3://b/y.parquet", columns=("a",)), [], batch_size=2)
    expected = stoker.parquet(f"{tmp_path}/x-*.parquet", "s3://b/y.parquet", columns=("a",))
    assert with_absolute_paths(pipeline).source == expected
