from __future__ import annotations

from pathlib import Path

import pytest

from stoker.formats.location import common_folder, places, static_folder
from stoker.formats.source import files, tar


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "stoker"


@pytest.mark.parametrize(
    "pattern, folder",
    [
        ("file:///d/a.tar", "file:///d/"),
        ("file:///d/a-{0..3}.tar", "file:///d/"),
        ("file:///d/{train,val}/a.tar", "file:///d/"),
        ("s3://b/p/*/x?.tar", "s3://b/p/"),
        ("s3://b/*.tar", "s3://b/"),
    ],
)
def test_static_folder(pattern: str, folder: str) -> None:
    assert static_folder(pattern) == folder


@pytest.mark.parametrize(
    "folders, common",
    [
        (["s3://b/p/"], "s3://b/p/"),
        (["s3://b/p/x/", "s3://b/p/xy/"], "s3://b/p/"),
        (["s3://b/p/", "s3://b/"], "s3://b/"),
        (["s3://b/", "s3://c/"], ""),
        (["s3://b/p/", "gs://b/p/"], ""),
        (["file:///d/", "file:///e/"], ""),
        (["file:///d/x/", "file:///d/y/"], "file:///d/"),
    ],
)
def test_common_folder(folders: list[str], common: str) -> None:
    assert common_folder(folders) == common


def test_beside_the_data_then_the_cache(cache: Path) -> None:
    beside, cached = places(tar("s3://b/p/a-{0..3}.tar"))
    assert beside.startswith("s3://b/p/.stoker-index-")
    assert cached.startswith(f"file://{cache}/index-")
    assert cached.endswith(".parquet")


def test_the_name_stays_when_the_folder_moves() -> None:
    def names(*patterns: str) -> list[str]:
        return [place.rpartition("/")[2] for place in places(tar(*patterns))]

    here, moved = names("/d/one/a*.tar", "/d/one/b.tar"), names("/e/two/a*.tar", "/e/two/b.tar")
    assert here[0] == moved[0]
    assert here[1] != moved[1]
    assert names("/d/one/b.tar", "/d/one/a*.tar")[0] != here[0]


def test_another_rule_another_index() -> None:
    assert places(tar("/d/a.tar"))[0] != places(tar("/d/a.tar", keys="last-dot"))[0]
    assert places(tar("/d/a.tar"))[0] == places(tar("/d/a.tar", chunk_bytes=7))[0]
    assert places(files("/d"))[0] != places(files("/d", extensions=("png",)))[0]


@pytest.mark.parametrize("patterns", [("https://h/a.tar",), ("s3://b/a.tar", "s3://c/a.tar"), ("/a.tar",)])
def test_only_the_cache_where_nothing_can_lie_beside(patterns: tuple[str, ...], cache: Path) -> None:
    (place,) = places(tar(*patterns))
    assert place.startswith(f"file://{cache}/")


def test_what_the_user_named_alone(tmp_path: Path) -> None:
    assert places(tar("/d/a.tar", manifest=str(tmp_path / "m.parquet"))) == [f"file://{tmp_path}/m.parquet"]


def test_files_lie_in_their_folder() -> None:
    assert places(files("/d/train"))[0].startswith("file:///d/train/.stoker-index-")
    assert places(files("/d/train.csv"))[0].startswith("file:///d/.stoker-index-")
