"""Patterns become URLs, or errors that show what lies near."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.errors import NotFoundError, SpecError
from stoker.storage.patterns import expand
from support.servers import Bucket


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in [
        "train-000.tar",
        "train-001.tar",
        "train-002.tar",
        "val.tar",
        "sub/a b%20c.tar",
        "sub/deep/z.tar",
        ".x.tar",
    ]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    return tmp_path


@pytest.fixture
def names(folder: Path) -> Callable[..., list[str]]:
    def expanded(*patterns: str) -> list[str]:
        return [
            url.removeprefix(f"file://{folder}/") for url in expand([f"{folder}/{pattern}" for pattern in patterns])
        ]

    return expanded


def test_order_is_that_of_the_patterns_and_listings_are_sorted(names: Callable[..., list[str]]) -> None:
    assert names("val.tar", "train-*.tar") == ["val.tar", "train-000.tar", "train-001.tar", "train-002.tar"]
    assert names("train-{002..000}.tar") == ["train-002.tar", "train-001.tar", "train-000.tar"]


def test_wildcards_on_disk(names: Callable[..., list[str]]) -> None:
    assert names("**/*.tar") == sorted(
        ["train-000.tar", "train-001.tar", "train-002.tar", "val.tar", "sub/a b%20c.tar", "sub/deep/z.tar"]
    )
    assert names("*/*.tar") == ["sub/a b%20c.tar"]
    assert names("train-00[12].tar") == ["train-001.tar", "train-002.tar"]
    assert names("{val,sub/*}.tar") == ["val.tar", "sub/a b%20c.tar"]


def test_without_wildcards_nothing_is_looked_up(names: Callable[..., list[str]]) -> None:
    assert names("not-{0..1}.tar") == ["not-0.tar", "not-1.tar"]
    assert expand(["s3://no-such-bucket/x y%20{0..1}.tar"]) == [
        "s3://no-such-bucket/x y%200.tar",
        "s3://no-such-bucket/x y%201.tar",
    ]


def test_escapes_make_ordinary_characters(names: Callable[..., list[str]]) -> None:
    assert names(r"\{a,b\}\*.tar") == ["{a,b}*.tar"]


def test_relative_patterns_in_a_folder_with_an_odd_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "[x] {y}*"
    here.mkdir()
    (here / "1.tar").write_bytes(b"")
    monkeypatch.chdir(here)
    assert expand(["*.tar"]) == expand(["1.tar"]) == [f"file://{here}/1.tar"]


def test_one_string_is_one_pattern(folder: Path) -> None:
    assert expand(f"{folder}/val.tar") == [f"file://{folder}/val.tar"]
    assert expand([folder / "val.tar"]) == [f"file://{folder}/val.tar"]  # type: ignore[list-item]  # users pass Paths


def test_duplicates_name_both_patterns(folder: Path) -> None:
    with pytest.raises(SpecError, match=r"train-001\.tar is named by both '.*train-001\.tar' and '.*train-\*\.tar'"):
        expand([f"{folder}/train-001.tar", f"{folder}/train-*.tar"])
    with pytest.raises(SpecError, match="twice"):
        expand([f"{folder}/{{val,val}}.tar"])
    with pytest.raises(SpecError, match="named by both"):
        expand([f"{folder}/val.tar", f"file://{folder}/sub/../val.tar"])


def test_no_pattern() -> None:
    with pytest.raises(SpecError, match="no pattern"):
        expand([])


def test_nothing_found_shows_what_lies_near(folder: Path) -> None:
    with pytest.raises(NotFoundError, match=r"nothing matches '.*trian-\*\.tar'.* has .*train-000\.tar"):
        expand([f"{folder}/trian-*.tar"])
    with pytest.raises(NotFoundError, match=rf"file://{folder}/ has sub, "):
        expand([f"{folder}/subb/*.tar"])


def test_nothing_found_anywhere_does_not_walk_the_disk() -> None:
    with pytest.raises(NotFoundError, match="file:/// has"):
        expand(["/no-such-root-folder/deeper/*.tar"])


def test_wildcards_in_a_bucket(s3_bucket: Bucket) -> None:
    s3_bucket.put_many(dict.fromkeys(["t/0.tar", "t/1.tar", "t/x/2.tar", "t/what?.tar", "u/0.tar"], b""))
    url = s3_bucket.url
    assert expand([f"{url}/t/[01].tar"], s3_bucket.storage_options) == [f"{url}/t/0.tar", f"{url}/t/1.tar"]
    assert expand([f"{url}/*/0.tar"], s3_bucket.storage_options) == [f"{url}/t/0.tar", f"{url}/u/0.tar"]
    with pytest.raises(NotFoundError, match=r"s3://bucket-\d+/t/ has 0\.tar, 1\.tar"):
        expand([f"{url}/t/*.tgz"], s3_bucket.storage_options)
    with pytest.raises(NotFoundError, match=r"s3://bucket-\d+/ has t/0\.tar"):
        expand([f"{url}/tt/*.tar"], s3_bucket.storage_options)


def test_an_empty_bucket(s3_bucket: Bucket) -> None:
    with pytest.raises(NotFoundError, match="is empty"):
        expand([f"{s3_bucket.url}/*.tar"], s3_bucket.storage_options)


def test_web_addresses_have_braces_but_no_wildcards() -> None:
    assert expand(["https://h/x-{0..1}.tar?sig=a[b]"]) == ["https://h/x-0.tar?sig=a[b]", "https://h/x-1.tar?sig=a[b]"]
    with pytest.raises(SpecError, match="cannot be listed"):
        expand(["https://h/*.tar?sig=SECRET"])


def test_unreadable_folders_are_no_surprise(folder: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (folder / "sub").chmod(0)
    with pytest.raises(OSError, match="permission"):
        expand([f"{folder}/**/*.tar"])
