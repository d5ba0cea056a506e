"""URLs are taken apart without changing a name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import SpecError
from stoker.storage.urls import Location, local_path, locate, normalize, scheme_of, shown


def test_relative_paths_become_absolute_file_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert normalize("a/../b/x%20 y.tar") == f"file://{tmp_path}/b/x%20 y.tar"
    assert normalize(Path("x.tar")) == f"file://{tmp_path}/x.tar"


def test_the_home_folder_is_meant_by_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert normalize("~/x.tar") == "file:///home/someone/x.tar"


@pytest.mark.parametrize(
    "url, expected",
    [
        ("/a//b/./c", "file:///a/b/c"),
        ("/a/", "file:///a/"),
        ("/", "file:///"),
        ("file:///a/b", "file:///a/b"),
        ("file:/a/b", "file:///a/b"),
        ("file://localhost/a/b", "file:///a/b"),
        ("s3://bucket/a//b", "s3://bucket/a//b"),
        ("/odd:name#?.tar", "file:///odd:name#?.tar"),
    ],
)
def test_normal_forms(url: str, expected: str) -> None:
    assert normalize(url) == expected
    assert normalize(expected) == expected


@pytest.mark.parametrize(
    "url, expected",
    [
        ("s3://bucket/a b/c?.tar", Location("s3", "s3://bucket", "a b/c?.tar")),
        ("gs://bucket", Location("gs", "gs://bucket", "")),
        ("https://host:8/a/b?x=1/2", Location("https", "https://host:8", "a/b?x=1/2")),
        ("https://host?x=1/2", Location("https", "https://host", "?x=1/2")),
        ("file:///a/b", Location("file", "file://", "/a/b")),
    ],
)
def test_locate(url: str, expected: Location) -> None:
    assert locate(url) == expected


@pytest.mark.parametrize(
    "url, words",
    [
        ("", "empty"),
        ("s3:///key", "bucket"),
        ("https:///x", "host"),
        ("file://data/x.tar", "file:///absolute/path"),
        ("/a\0b", "zero byte"),
    ],
)
def test_what_is_no_url_is_refused(url: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        locate(url)


def test_secrets_of_web_addresses_are_not_shown() -> None:
    assert shown("https://me:pw@host/x.tar?sig=SECRET&b=1") == "https://host/x.tar?…"
    assert shown("s3://bucket/what?.tar") == "s3://bucket/what?.tar"


@given(
    st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1).filter(
        lambda n: n[0] != "."
    )
)
def test_every_local_name_survives(name: str) -> None:
    assert local_path(normalize(f"/data/{name}")) == f"/data/{name}"


def test_scheme_is_lower_case() -> None:
    assert (scheme_of("S3://b/x"), scheme_of("C/d"), scheme_of("filecache::s3://b")) == ("s3", "file", "filecache")
