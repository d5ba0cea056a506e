from __future__ import annotations

import hashlib
import itertools
import os
from pathlib import Path

import pytest

from stoker.errors import NotFoundError, ShardError, StorageError, TransientError
from stoker.formats.index import IndexProgress, is_current, plan
from stoker.formats.manifest import Shard
from stoker.formats.open import Built, build_manifest, open_dataset
from stoker.formats.source import Tar, tar
from stoker.formats.stores import Access
from stoker.sample import RawSample
from stoker.storage.store import ObjectInfo
from support.counting import Opener
from support.faulty_http import Flip, run_faulty_http
from support.shards import make_shards, samples, write_tar


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "stoker"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_shards(tmp_path / "data", (7, 11, 2))
    return tmp_path / "data"


def source(folder: Path) -> Tar:
    return tar(folder / "shard-*.tar")


def scanned(built: Built) -> tuple[int, int]:
    return built.num_scanned, built.num_kept


def fingerprint(folder: Path) -> str:
    return open_dataset(source(folder)).fingerprint


def entry(name: str, size: int = 9, version: str = "v") -> ObjectInfo:
    return ObjectInfo(f"s3://b/{name}", size, version)


def known(name: str, size: int = 9, version: str = "v") -> Shard:
    return Shard(f"s3://b/{name}", size, version, 1, "d", "tar", size)


def test_plan_knows_a_shard_by_url_size_and_version() -> None:
    old = [known("a"), known("b"), known("c"), known("d")]
    planned = plan([entry("d"), entry("a", 8), entry("b", version="w"), entry("new"), entry("c")], old)
    assert planned.old == (3, None, None, None, 2)
    assert [found.url[-1] for found in planned.to_scan] == ["a", "b", "w"]
    assert not is_current(planned, old)


def test_current_means_the_same_shards_in_the_same_order() -> None:
    old = [known("a"), known("b")]
    assert is_current(plan([entry("a"), entry("b")], old), old)
    assert not is_current(plan([entry("b"), entry("a")], old), old)
    assert not is_current(plan([entry("a")], old), old)
    assert not is_current(plan([], old), old)
    assert is_current(plan([], []), [])


def test_a_web_address_is_known_under_another_signature() -> None:
    old = [Shard("https://h/a.tar", 9, "v", 1, "d", "tar", 9)]
    assert is_current(plan([ObjectInfo("https://h/a.tar?sig=2", 9, "v")], old), old)


def test_the_second_opening_reads_no_shard(folder: Path) -> None:
    assert scanned(build_manifest(source(folder))) == (3, 0)
    opener = Opener()
    assert scanned(build_manifest(source(folder), access=Access(opener))) == (0, 3)
    assert opener.store.urls_read(".tar") == set()


def test_only_what_changed_is_read_again(folder: Path) -> None:
    before = open_dataset(source(folder))
    write_tar(folder / "shard-0001.tar", samples([5])[0])
    write_tar(folder / "shard-0003.tar", samples([4])[0])
    (folder / "shard-0002.tar").unlink()
    opener = Opener()
    built = build_manifest(source(folder), access=Access(opener))
    assert scanned(built) == (2, 1)
    assert [shard.num_rows for shard in built.manifest.shards] == [7, 5, 4]
    assert {url[-8:] for url in opener.store.urls_read(".tar")} == {"0001.tar", "0003.tar"}
    after = open_dataset(source(folder))
    assert after.fingerprint != before.fingerprint
    assert after.chunks.num_samples == 16
    keys = [sample.origin.key for sample in after.read_chunk(0)]  # type: ignore[union-attr]
    assert keys == [f"s00-{row:04d}" for row in range(7)]


def test_the_same_content_written_again_is_scanned_and_equal(folder: Path) -> None:
    before = fingerprint(folder)
    os.utime(folder / "shard-0000.tar", ns=(1, 1))
    assert scanned(build_manifest(source(folder))) == (1, 2)
    assert fingerprint(folder) == before


def test_a_moved_folder_is_the_same_data_set(folder: Path, tmp_path: Path) -> None:
    before = fingerprint(folder)
    moved = folder.rename(tmp_path / "elsewhere")
    opener = Opener()
    assert open_dataset(source(moved), access=Access(opener)).fingerprint == before
    assert opener.store.urls_read(".tar") == set()


def test_fingerprint_depends_on_names_order_rule_and_chunks(folder: Path) -> None:
    shards = sorted(folder.glob("*.tar"))
    found = {
        open_dataset(made).fingerprint
        for made in (tar(*shards), tar(*reversed(shards)), tar(*shards, keys="last-dot"), tar(*shards, chunk_bytes=99))
    }
    assert len(found) == 4


def test_kept_in_the_cache_folder_where_the_data_cannot_hold_it(folder: Path, cache: Path) -> None:
    name = build_manifest(source(folder)).manifest.url.rpartition("/")[2]
    (folder / name).unlink()
    (folder / name / "in the way").mkdir(parents=True)  # root may write anywhere, but not over a folder
    built = build_manifest(source(folder))
    assert built.manifest.url.startswith(f"file://{cache}/index-")
    assert scanned(build_manifest(source(folder))) == (0, 3)


def test_an_old_index_beside_the_data_does_not_hide_the_one_in_the_cache(folder: Path) -> None:
    beside = Path(build_manifest(source(folder)).manifest.url.removeprefix("file://"))
    old = beside.read_bytes()
    write_tar(folder / "shard-0001.tar", samples([5])[0])
    beside.unlink()
    (beside / "in the way").mkdir(parents=True)
    assert scanned(build_manifest(source(folder)))[0] == 3
    (beside / "in the way").rmdir()
    beside.rmdir()
    beside.write_bytes(old)
    assert scanned(build_manifest(source(folder))) == (0, 3)


def test_kept_nowhere_it_works_all_the_same(folder: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    name = build_manifest(source(folder)).manifest.url.rpartition("/")[2]
    (folder / name).unlink()
    (folder / name / "in the way").mkdir(parents=True)
    cache.parent.mkdir()
    cache.write_text("in the way")
    assert open_dataset(source(folder)).chunks.num_samples == 20
    assert "could be kept nowhere" in caplog.text


def test_the_users_place_is_taken_or_it_is_an_error(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "place" / "index.parquet"
    named = tar(folder / "*.tar", manifest=str(place))
    assert build_manifest(named).manifest.url == f"file://{place}"
    assert [path.name for path in folder.iterdir() if path.suffix != ".tar"] == []
    place.unlink()
    (place / "in the way").mkdir(parents=True)
    with pytest.raises(StorageError, match=r"index\.parquet"):
        build_manifest(named)


def test_an_index_of_other_keys_at_the_users_place_is_made_again(folder: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "index.parquet")
    build_manifest(tar(folder / "*.tar", manifest=place))
    assert scanned(build_manifest(tar(folder / "*.tar", manifest=place, keys="last-dot"))) == (3, 0)


def test_a_damaged_index_is_made_again(folder: Path) -> None:
    path = Path(build_manifest(source(folder)).manifest.url.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-20])
    assert scanned(build_manifest(source(folder))) == (3, 0)
    assert scanned(build_manifest(source(folder))) == (0, 3)


def test_progress_adds_up(folder: Path) -> None:
    seen: list[IndexProgress] = []
    build_manifest(source(folder), seen.append)
    total = sum(path.stat().st_size for path in folder.glob("*.tar"))
    last = seen[-1]
    assert (last.num_shards, last.shards_done, last.rows_done) == (3, 3, 20)
    assert (last.num_bytes, last.bytes_done) == (total, total)
    assert all(later.bytes_done >= sooner.bytes_done for sooner, later in itertools.pairwise(seen))


def test_progress_counts_what_is_hopped_over(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("a", {"bin": bytes(20 << 20)}), ("b", {"bin": bytes(20 << 20)})])
    seen: list[IndexProgress] = []
    opener = Opener()
    build_manifest(tar(tmp_path / "a.tar"), seen.append, access=Access(opener))
    size = (tmp_path / "a.tar").stat().st_size
    assert opener.store.num_bytes < size
    assert seen[-1].bytes_done == seen[-1].num_bytes == size


def test_one_bad_shard_stops_the_index_and_is_named(folder: Path) -> None:
    (folder / "shard-0001.tar").write_bytes(b"no tar" * 1000)
    with pytest.raises(ShardError, match=r"shard-0001\.tar is no tar"):
        build_manifest(source(folder))


def test_a_missing_shard_is_named(folder: Path) -> None:
    with pytest.raises(NotFoundError, match=r"shard-0003\.tar"):
        build_manifest(tar(str(folder / "shard-{0000..0003}.tar")))


def test_many_openings_at_once_agree(folder: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: fingerprint(folder), range(16)))
    assert len(found) == 1
    assert [path.name for path in folder.iterdir() if path.name.endswith(".tmp")] == []


def large_shard(folder: Path) -> bytes:
    """A shard that is scanned in two reads; a smaller one is compared with its MD5 where it is read."""
    rows = ((f"{row:02d}", {"bin": bytes([row]) * 900_000}) for row in range(11))
    return write_tar(folder / "large.tar", rows).read_bytes()


class TestFlippedOnTheWay:
    """Shards at a web server whose ETag is their MD5, as those of S3 are if they were uploaded at once."""

    @pytest.mark.parametrize("at", [3, 700, 1_810_000])  # in the first header, in a body, near a later header
    def test_a_byte_that_is_flipped_during_the_scan_is_not_in_the_index(self, at: int, tmp_path: Path) -> None:
        payload = large_shard(tmp_path)
        with run_faulty_http() as server:
            built = build_manifest(tar(server.put("a.tar", payload, [Flip(at), Flip(at)])))
            right = build_manifest(tar(server.put("b.tar", payload)))
            assert built.manifest.shards[0].digest == right.manifest.shards[0].digest
            assert not built.manifest.notices
            dataset = open_dataset(tar(f"{server.url}/a.tar"))
            assert all(isinstance(sample, RawSample) for chunk in range(9) for sample in dataset.read_chunk(chunk))

    def test_an_etag_that_is_no_md5_is_found_out_by_reading_twice(self, tmp_path: Path) -> None:
        with run_faulty_http() as server:
            url = server.put("a.tar", large_shard(tmp_path))
            server.etags["/a.tar"] = f'"{hashlib.md5(b"another").hexdigest()}"'
            assert build_manifest(tar(url)).num_scanned == 1
            assert server.num_gets("a.tar") == 4

    def test_bytes_that_differ_each_time_end_it(self, tmp_path: Path) -> None:
        with run_faulty_http() as server:
            url = server.put("a.tar", large_shard(tmp_path), [Flip(at) for at in range(600, 620)])
            with pytest.raises(TransientError, match="read 4 times, and its bytes differ"):
                build_manifest(tar(url))
