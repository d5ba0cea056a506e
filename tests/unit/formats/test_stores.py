from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from stoker.errors import AccessError, NotFoundError
from stoker.formats.open import build_manifest, open_dataset
from stoker.formats.source import tar
from stoker.formats.stores import Access, Stores
from stoker.sample import RawSample
from stoker.storage.files import FileStore
from stoker.storage.open import open_store
from stoker.storage.store import ObjectInfo, Store
from support.counting import Opener
from support.servers import Bucket
from support.shards import tar_bytes


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "stoker"


class Unlisted(FileStore):
    """Local files as a server that refuses listings would show them."""

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        raise AccessError(f"no right to list {prefix}")


class Prefixed:
    """Shows local files under ``mem://`` URLs, so that they count as remote."""

    def __init__(self, inner: FileStore) -> None:
        self.inner, self.heads, self.listings = inner, 0, 0

    def head(self, url: str) -> ObjectInfo:
        self.heads += 1
        found = self.inner.head(url.replace("mem://", "file:///"))
        return ObjectInfo(url, found.size_bytes, found.version)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self.listings += 1
        for entry in self.inner.list(prefix.replace("mem://", "file:///")):
            yield ObjectInfo(entry.url.replace("file:///", "mem://"), entry.size_bytes, entry.version)

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        return self.inner.read(url.replace("mem://", "file:///"), start, stop, version)

    def write(self, url: str, payload: bytes) -> None:
        self.inner.write(url.replace("mem://", "file:///"), payload)


def remote_urls(folder: Path, count: int) -> list[str]:
    for number in range(count):
        (folder / f"f{number:03d}").write_bytes(bytes(number))
    (folder / "other").write_bytes(b"")
    return [f"mem://{str(folder)[1:]}/f{number:03d}" for number in range(count)]


@pytest.mark.parametrize(
    "inner, count, heads, listings",
    [(FileStore(), 5, 5, 0), (FileStore(), 40, 0, 1), (Unlisted(), 40, 40, 1), (FileStore(), 0, 0, 0)],
)
def test_many_heads_are_one_listing(inner: FileStore, count: int, heads: int, listings: int, tmp_path: Path) -> None:
    urls = remote_urls(tmp_path, count)
    store = Prefixed(inner)
    found = Stores(None, Access(lambda _url, _options: store)).heads(urls)
    assert [(entry.url, entry.size_bytes) for entry in found] == [(url, at) for at, url in enumerate(urls)]
    assert (store.heads, store.listings) == (heads, listings)


@pytest.mark.parametrize("count", [5, 40])
def test_a_missing_object_is_an_error(count: int, tmp_path: Path) -> None:
    urls = remote_urls(tmp_path, count)
    (tmp_path / "f003").unlink()
    with pytest.raises(NotFoundError, match="f003"):
        Stores(None, Access(lambda _url, _options: Prefixed(FileStore()))).heads(urls)


def test_options_go_to_the_remote_store_alone(tmp_path: Path) -> None:
    seen: list[tuple[str, dict[str, str]]] = []

    def opener(url: str, options: Mapping[str, str]) -> FileStore:
        seen.append((url.partition("://")[0], dict(options)))
        return FileStore()

    stores = Stores({"region": "x"}, Access(opener))
    assert stores.of("s3://b/a") is stores.of("s3://c/d")
    stores.of(str(tmp_path))
    assert [options for _, options in seen] == [{"region": "x"}, {}]


def test_shards_in_a_bucket_keep_their_index_there(s3_bucket: Bucket) -> None:
    shards = {
        f"train-{at:03d}.tar": tar_bytes([(f"{at}-{row}", {"txt": b"t"}) for row in range(3)]) for at in range(20)
    }
    s3_bucket.put_many(shards)
    source = tar(f"{s3_bucket.url}/train-{{000..019}}.tar", storage_options=dict(s3_bucket.storage_options))
    built = build_manifest(source)
    assert built.num_scanned == 20
    assert built.manifest.url.startswith(f"{s3_bucket.url}/.stoker-index-")
    opener = Opener()
    dataset = open_dataset(source, access=Access(opener))
    assert dataset.chunks.num_samples == 60
    s3_bucket.put("train-007.tar", tar_bytes([("new", {"txt": b"t"})]))
    assert build_manifest(source).num_scanned == 1
    dataset = open_dataset(source)
    (sample,) = dataset.read_chunk(7)
    assert isinstance(sample, RawSample)
    assert (sample.origin.key, sample.origin.url) == ("new", f"{s3_bucket.url}/train-007.tar")


def test_a_bucket_that_takes_no_index(gcs_bucket: Bucket, cache: Path) -> None:
    """fake-gcs-server refuses obstore's uploads, as a bucket without the right to write does."""
    gcs_bucket.put("a.tar", tar_bytes([("a", {"txt": b"t"})]))
    source = tar(f"{gcs_bucket.url}/*.tar", storage_options=dict(gcs_bucket.storage_options))

    def opener(url: str, options: Mapping[str, str]) -> Store:
        return open_store(url, options, sleep=lambda _seconds: None)

    assert build_manifest(source, access=Access(opener)).manifest.url.startswith(f"file://{cache}/index-")
    assert build_manifest(source).num_scanned == 0
    assert open_dataset(source).chunks.num_samples == 1
