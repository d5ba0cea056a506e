"""What every store promises, on real ones: disk, fsspec, S3 (moto), GCS (fake-gcs-server), a web server."""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import fsspec
import pytest

from stoker.errors import ChangedError, NotFoundError, SpecError, StorageError
from stoker.storage.open import open_store
from stoker.storage.peek import PeekingStore
from stoker.storage.retry import RetryPolicy
from support.faulty_http import run_faulty_http

FIRST_TRY_ONLY = RetryPolicy(max_attempts=2, first_wait_s=0.0, attempt_s=20.0, deadline_s=60.0)
ODD_NAMES = [
    "with space.tar",
    "ünïcødé-日本.tar",
    "percent%20twenty%.tar",
    "plus+plus.tar",
    "hash#tag.tar",
    "what?.tar",
    "song 2.0 (x).mp3",
    ".hidden.jpg",
    "[bracket]{brace}~star.tar",
    "a&b=c;d,e'f!.tar",
]


@dataclass(frozen=True, slots=True)
class Place:
    """A store with an empty folder in it, and a way to put objects there that does not use the store."""

    kind: str
    folder: str
    store: PeekingStore
    put: Callable[[str, bytes], object]

    def url(self, name: str) -> str:
        return f"{self.folder}/{quote(name) if self.kind == 'http' else name}"


@pytest.fixture(params=["file", "memory", "s3", "gs", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    match request.param:
        case "file":
            yield _file(tmp_path)
        case "memory":
            yield _memory(tmp_path)
        case "http":
            with run_faulty_http() as server:
                store = open_store(server.url, policy=FIRST_TRY_ONLY)
                yield Place(
                    "http", f"{server.url}/top", store, lambda name, payload: server.put(f"top/{name}", payload)
                )
        case kind:
            bucket = request.getfixturevalue({"s3": "s3_bucket", "gs": "gcs_bucket"}[kind])
            store = open_store(bucket.url, bucket.storage_options, policy=FIRST_TRY_ONLY)
            yield Place(kind, f"{bucket.url}/top", store, lambda name, payload: bucket.put(f"top/{name}", payload))


def _file(tmp_path: Path) -> Place:
    puts = itertools.count(1)

    def put(name: str, payload: bytes) -> None:
        path = tmp_path / "top" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(payload)
        os.utime(path, ns=(0, path.stat().st_mtime_ns + next(puts)))  # the system's clock may stand still meanwhile

    return Place("file", f"file://{tmp_path}/top", open_store(str(tmp_path), policy=FIRST_TRY_ONLY), put)


def _memory(tmp_path: Path) -> Place:
    folder = f"memory://{tmp_path}/top"  # the memory file system is one for the whole process
    system = fsspec.filesystem("memory")
    store = open_store(folder, policy=FIRST_TRY_ONLY)
    return Place("memory", folder, store, lambda name, payload: system.pipe_file(f"{folder}/{name}", payload))


def needs_listing(place: Place) -> None:
    if place.kind == "http":
        pytest.skip("a web server has no listing")


def needs_writing(place: Place) -> None:
    if place.kind == "http":
        pytest.skip("a web server is read only")
    if place.kind == "gs":
        pytest.skip("fake-gcs-server refuses uploads of the XML API, which obstore uses")


def payload_of(num_bytes: int) -> bytes:
    return bytes(index * 7 % 251 for index in range(num_bytes))


# --- head ---


def test_head_tells_url_size_and_a_version(place: Place) -> None:
    place.put("x.tar", payload_of(1234))
    found = place.store.head(place.url("x.tar"))
    assert (found.url, found.size_bytes) == (place.url("x.tar"), 1234)
    assert found.version


def test_head_version_changes_with_the_content(place: Place) -> None:
    place.put("x.tar", b"one")
    before = place.store.head(place.url("x.tar")).version
    place.put("x.tar", b"two!")
    assert place.store.head(place.url("x.tar")).version != before


def test_head_of_nothing(place: Place) -> None:
    with pytest.raises(NotFoundError, match=r"no-such\.tar"):
        place.store.head(place.url("no-such.tar"))


def test_head_of_a_folder_is_an_error(place: Place) -> None:
    place.put("folder/x.tar", b"x")
    with pytest.raises(StorageError, match="folder"):
        place.store.head(place.url("folder"))


# --- read ---


@pytest.mark.parametrize("start, stop", [(0, 1), (0, 1000), (999, 1000), (1, 999), (500, 501)])
def test_read_gives_exactly_the_range(place: Place, start: int, stop: int) -> None:
    whole = payload_of(1000)
    place.put("x.tar", whole)
    assert bytes(place.store.read(place.url("x.tar"), start, stop)) == whole[start:stop]


@pytest.mark.parametrize("at", [0, 500, 1000])
def test_read_of_nothing_is_empty(place: Place, at: int) -> None:
    place.put("x.tar", payload_of(1000))
    assert len(place.store.read(place.url("x.tar"), at, at)) == 0


@pytest.mark.parametrize("start, stop", [(0, 1001), (990, 1010), (1000, 1001), (5000, 6000)])
def test_read_behind_the_end_says_how_long_the_object_is(place: Place, start: int, stop: int) -> None:
    place.put("x.tar", payload_of(1000))
    with pytest.raises(StorageError, match=rf"x\.tar has 1000 bytes.*\[{start}, {stop}\)"):
        place.store.read(place.url("x.tar"), start, stop)


@pytest.mark.parametrize("start, stop", [(-1, 5), (5, 4)])
def test_read_of_an_impossible_range(place: Place, start: int, stop: int) -> None:
    place.put("x.tar", payload_of(10))
    with pytest.raises(SpecError, match=r"0 <= start <= stop"):
        place.store.read(place.url("x.tar"), start, stop)


def test_read_of_nothing_there(place: Place) -> None:
    with pytest.raises(NotFoundError, match=r"no-such\.tar"):
        place.store.read(place.url("no-such.tar"), 0, 10)


def test_a_large_read_is_whole(place: Place) -> None:
    block = payload_of(1 << 20)
    whole = b"".join(bytes([number]) + block for number in range(18))
    place.put("big.tar", whole)
    assert bytes(place.store.read(place.url("big.tar"), 3, len(whole) - 5)) == whole[3:-5]


def test_reads_from_many_threads(place: Place) -> None:
    whole = payload_of(20_000)
    place.put("x.tar", whole)
    wrong: list[int] = []

    def read(part: int) -> None:
        if bytes(place.store.read(place.url("x.tar"), part * 1000, part * 1000 + 1000)) != whole[part * 1000 :][:1000]:
            wrong.append(part)

    threads = [threading.Thread(target=read, args=(part,)) for part in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_mean_themselves(place: Place, name: str) -> None:
    place.put(name, name.encode())
    url = place.url(name)
    assert place.store.head(url).url == url
    assert bytes(place.store.read(url, 0, len(name.encode()))) == name.encode()


# --- versions ---


def replaced(place: Place, size_bytes: int = 999) -> tuple[str, str]:
    """The URL of an object of 1000 bytes, and the version that it had before, when it had another size."""
    place.put("x.tar", payload_of(size_bytes))
    before = place.store.head(place.url("x.tar")).version
    place.put("x.tar", payload_of(1000))
    return place.url("x.tar"), before


@pytest.mark.parametrize("start, stop", [(0, 1000), (10, 20)])
def test_the_version_of_a_head_and_of_a_listing_are_read(place: Place, start: int, stop: int) -> None:
    place.put("x.tar", payload_of(1000))
    url = place.url("x.tar")
    versions = {place.store.head(url).version}
    if place.kind != "http":
        versions |= {found.version for found in place.store.list(url)}
    for version in versions:
        assert bytes(place.store.read(url, start, stop, version)) == payload_of(1000)[start:stop]


@pytest.mark.parametrize("start, stop", [(0, 1000), (0, 999), (10, 20)])
def test_another_version_is_an_error_and_none_is_any(place: Place, start: int, stop: int) -> None:
    url, before = replaced(place)
    if place.kind == "memory":
        pytest.skip("fsspec tells no version with the bytes")
    with pytest.raises(ChangedError, match=rf"x\.tar was .*{re.escape(before)}.*Index it again"):
        place.store.read(url, start, stop, before)
    assert bytes(place.store.read(url, start, stop)) == payload_of(1000)[start:stop]


@pytest.mark.parametrize("start, stop", [(0, 2000), (990, 1010), (1500, 2000)])
def test_an_object_that_became_shorter_was_replaced(place: Place, start: int, stop: int) -> None:
    url, before = replaced(place, 2000)
    with pytest.raises(ChangedError, match=re.escape(before)):
        place.store.read(url, start, stop, before)


def test_a_large_read_of_another_version_is_an_error(place: Place) -> None:
    url, before = replaced(place)
    if place.kind == "memory":
        pytest.skip("fsspec tells no version with the bytes")
    place.put("x.tar", bytes(9 << 20))
    with pytest.raises(ChangedError):
        place.store.read(url, 0, 9 << 20, before)
    assert len(place.store.read(url, 0, 9 << 20, place.store.head(url).version)) == 9 << 20


# --- list ---


def test_list_is_recursive_sorted_and_by_prefix(place: Place) -> None:
    needs_listing(place)
    names = ["b.tar", "a-b/x.tar", "a/c/d/z.tar", "a/b.tar", "a.tar", "other/a.tar", "a/.hidden"]
    for name in names:
        place.put(name, name.encode())

    def listed(prefix: str) -> list[str]:
        return [found.url.removeprefix(place.folder + "/") for found in place.store.list(place.url(prefix))]

    assert listed("") == sorted(names)
    assert listed("a") == sorted(name for name in names if name.startswith("a"))
    assert listed("a/") == ["a/.hidden", "a/b.tar", "a/c/d/z.tar"]
    assert listed("a/b.tar") == ["a/b.tar"]
    assert listed("nothing/here") == []


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_listing_of_limited_depth_is_a_part_that_misses_nothing_above(place: Place, depth: int) -> None:
    needs_listing(place)
    names = ["0.tar", "a/1.tar", "a/b/2.tar", "a/b/c/3.tar", "a-b/1.tar"]
    for name in names:
        place.put(name, b"x")
    found = [item.url for item in place.store.list(place.url(""), max_depth=depth)]
    assert found == sorted(found)
    assert set(found) <= set(map(place.url, names))
    assert {place.url(name) for name in names if name.count("/") <= depth} <= set(found)


def test_list_agrees_with_head(place: Place) -> None:
    needs_listing(place)
    place.put("a.tar", payload_of(77))
    place.put("b/c.tar", payload_of(78))
    found = list(place.store.list(place.url("")))
    assert [item.size_bytes for item in found] == [77, 78]
    assert found == [place.store.head(item.url) for item in found]


def test_list_of_odd_names(place: Place) -> None:
    needs_listing(place)
    for name in ODD_NAMES:
        place.put(name, name.encode())
    assert [found.url for found in place.store.list(place.url(""))] == sorted(map(place.url, ODD_NAMES))


def test_list_of_more_than_one_page(s3_bucket: object, request: pytest.FixtureRequest) -> None:
    bucket = request.getfixturevalue("s3_bucket")
    objects: Mapping[str, bytes] = {f"many/{number:05d}": b"" for number in range(1005)}
    bucket.put_many(objects)
    store = open_store(bucket.url, bucket.storage_options, policy=FIRST_TRY_ONLY)
    assert [found.url for found in store.list(f"{bucket.url}/many/")] == [f"{bucket.url}/{name}" for name in objects]


# --- write ---


def test_written_objects_are_read_back(place: Place) -> None:
    needs_writing(place)
    for payload in (b"", b"x", payload_of(300_000)):
        place.store.write(place.url("new/folder/x.bin"), payload)
        assert place.store.head(place.url("new/folder/x.bin")).size_bytes == len(payload)
        assert bytes(place.store.read(place.url("new/folder/x.bin"), 0, len(payload))) == payload


def test_a_reader_never_sees_half_a_write(place: Place) -> None:
    needs_writing(place)
    url = place.url("manifest")
    versions = [bytes([number]) * 200_000 for number in range(6)]
    place.store.write(url, versions[0])
    done = threading.Event()
    mixed: list[bytes] = []

    def read() -> None:
        while not done.is_set():
            body = bytes(place.store.read(url, 0, 200_000))
            if body not in versions:
                mixed.append(body[:10])

    reader = threading.Thread(target=read)
    reader.start()
    for version in versions[1:]:
        place.store.write(url, version)
    done.set()
    reader.join()
    assert mixed == []


def test_writing_leaves_nothing_else_behind(place: Place) -> None:
    needs_writing(place)
    place.store.write(place.url("x"), b"x")
    assert [found.url for found in place.store.list(place.url(""))] == [place.url("x")]
