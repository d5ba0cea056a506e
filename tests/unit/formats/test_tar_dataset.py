from __future__ import annotations

import gzip
import pickle
import tarfile
import warnings
from pathlib import Path

import pytest

from stoker.errors import SampleError, SampleOrigin, ShardError, StokerWarning
from stoker.formats.dataset import Dataset
from stoker.formats.open import open_dataset
from stoker.formats.source import tar
from stoker.formats.stores import Access
from stoker.sample import RawSample
from support.counting import Opener
from support.shards import make_shards, samples, tar_bytes, write_tar


def read_all(dataset: Dataset) -> list[RawSample | SampleError]:
    return [sample for chunk in range(len(dataset.chunks.num_rows)) for sample in dataset.read_chunk(chunk)]


def good(dataset: Dataset) -> list[tuple[str, dict[str, bytes]]]:
    found = []
    for sample in read_all(dataset):
        assert isinstance(sample, RawSample), sample
        found.append((sample.origin.key, {name: bytes(content) for name, content in sample.fields.items()}))
    return found


def member(name: str, content: bytes = b"x") -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    return entry.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def write(path: Path, *members: bytes) -> Path:
    path.write_bytes(b"".join(members) + bytes(1024))
    return path


@pytest.mark.parametrize("chunk_bytes", [1, 5000, 1 << 20])
def test_every_sample_in_order_with_its_origin(tmp_path: Path, chunk_bytes: int) -> None:
    expected = samples((7, 11, 2))
    make_shards(tmp_path, (7, 11, 2))
    dataset = open_dataset(tar(tmp_path / "*.tar", chunk_bytes=chunk_bytes))
    assert dataset.chunks.num_samples == 20
    assert good(dataset) == [sample for shard in expected for sample in shard]
    origins = [sample.origin for sample in read_all(dataset)]
    assert origins[7] == SampleOrigin(f"file://{tmp_path}/shard-0001.tar", 0, "s01-0000")
    assert origins[19] == SampleOrigin(f"file://{tmp_path}/shard-0002.tar", 1, "s02-0001")
    found = []
    for chunk, num_rows in enumerate(dataset.chunks.num_rows.tolist()):
        found += [dataset.origin(chunk, row) for row in range(num_rows)]
    assert [(where.url, where.row) for where in found] == [(where.url, where.row) for where in origins]  # type: ignore[union-attr]


def test_describe(tmp_path: Path) -> None:
    make_shards(tmp_path, (7, 2))
    found = open_dataset(tar(tmp_path / "*.tar")).describe()
    assert (found["shards"], found["samples"], found["source"]) == (2, 9, "tar")
    assert found["patterns"] == [f"file://{tmp_path}/*.tar"]
    assert found["bytes"] == sum(path.stat().st_size for path in tmp_path.glob("*.tar"))


def test_a_chunk_reads_its_bytes_and_no_others(tmp_path: Path) -> None:
    """Pain 12, at this level: what is read does not depend on where in the data set it lies."""
    write_tar(tmp_path / "a.tar", ((f"{row:05d}", {"txt": b"t" * 600}) for row in range(10_000)))
    opener = Opener()
    dataset = open_dataset(tar(tmp_path / "a.tar", chunk_bytes=64 << 10), access=Access(opener))
    chunk = next(at for at, first in enumerate(dataset.chunks.first_sample.tolist()) if first >= 9000)
    opener.store.reads.clear()
    (first, *_) = dataset.read_chunk(chunk)
    assert first.origin is not None
    assert first.origin.row == int(dataset.chunks.first_sample[chunk])
    ((_, start, stop),) = opener.store.reads
    assert start == first.origin.row * 1536
    assert stop - start == int(dataset.chunks.size_bytes[chunk]) <= (64 << 10) + 1536


def test_fields_are_views_of_the_chunk(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("a", {"txt": b"one", "cls": b"1"}), ("b", {"txt": b"two"})])
    first, second = open_dataset(tar(tmp_path / "a.tar")).read_chunk(0)
    assert isinstance(first, RawSample)
    assert isinstance(second, RawSample)
    views = [first.fields["txt"], first.fields["cls"], second.fields["txt"]]
    assert all(isinstance(view, memoryview) for view in views)
    assert len({id(view.obj) for view in views}) == 1


class Flip:
    """Flips one byte at ``position`` of a file, the first ``times`` that a range with it is read."""

    def __init__(self, position: int, times: int) -> None:
        self.position, self.times, self.done = position, times, 0

    def __call__(self, url: str, start: int, content: bytes, _before: int) -> bytes:
        if url.endswith(".tar") and start <= self.position < start + len(content) and self.done < self.times:
            self.done += 1
            at = self.position - start
            return content[:at] + bytes([content[at] ^ 0x20]) + content[at + 1 :]
        return content


PLACES = {"body": 3 * 2048 + 512 + 5, "header": 3 * 2048 + 20, "padding": 3 * 2048 + 2000}


@pytest.mark.parametrize("place", PLACES)
def test_a_flipped_byte_is_found_and_read_again(tmp_path: Path, place: str) -> None:
    content = [(f"{row:03d}", {"txt": b"t" * 700 + bytes([row]), "cls": b"1"}) for row in range(10)]
    write_tar(tmp_path / "a.tar", content)
    row_bytes = 512 + 1024 + 512 + 512
    opener = Opener()
    dataset = open_dataset(tar(tmp_path / "a.tar"), access=Access(opener))
    opener.store.spoil = Flip(PLACES[place], times=1)
    opener.store.reads.clear()
    assert good(dataset) == content
    (_, whole), (again_start, again_stop) = [(start, stop) for _, start, stop in opener.store.reads]
    assert whole == 10 * row_bytes
    assert again_stop - again_start == row_bytes, "only the row is read again"


def test_bytes_that_flip_elsewhere_each_time_are_read_until_none_does(tmp_path: Path) -> None:
    """A row that was damaged on its way twice, differently, is not damaged where it lies."""
    content = [(f"{row:03d}", {"txt": b"t" * 700}) for row in range(10)]
    write_tar(tmp_path / "a.tar", content)
    opener = Opener()
    dataset = open_dataset(tar(tmp_path / "a.tar"), access=Access(opener))
    flips = iter([Flip(3 * 1536 + 600 + at, times=1) for at in range(3)])

    def spoil(url: str, start: int, body: bytes, before: int) -> bytes:
        flip = next(flips, None)
        return body if flip is None else flip(url, start, body, before)

    opener.store.spoil = spoil
    opener.store.reads.clear()
    assert good(dataset) == content
    assert len(opener.store.reads) == 4


def test_a_byte_that_stays_flipped_costs_its_sample_alone(tmp_path: Path) -> None:
    content = [(f"{row:03d}", {"txt": b"t" * 700}) for row in range(10)]
    write_tar(tmp_path / "a.tar", content)
    opener = Opener()
    dataset = open_dataset(tar(tmp_path / "a.tar"), access=Access(opener))
    opener.store.spoil = Flip(3 * 1536 + 600, times=99)
    found = read_all(dataset)
    (bad,) = [sample for sample in found if isinstance(sample, SampleError)]
    assert found.index(bad) == 3
    assert bad.origin == SampleOrigin(f"file://{tmp_path}/a.tar", 3, "003")
    assert "read again, and its checksum is" in str(bad)
    assert opener.store.spoil.done == 2, "the same wrong checksum twice is believed"


def test_a_header_that_is_broken_in_a_row_without_checksum(tmp_path: Path) -> None:
    big = b"b" * (3 << 20)
    write_tar(tmp_path / "a.tar", [("big", {"bin": big * 4, "txt": b"t"}), ("small", {"txt": b"t"})])
    opener = Opener()
    dataset = open_dataset(tar(tmp_path / "a.tar"), access=Access(opener))
    opener.store.spoil = Flip(20, times=99)
    bad, after = read_all(dataset)
    assert isinstance(bad, SampleError)
    assert "no tar header: its checksum is" in str(bad)
    assert isinstance(after, RawSample)


def test_a_shard_that_became_shorter(tmp_path: Path) -> None:
    opener = Opener()
    path = write_tar(tmp_path / "a.tar", [("a", {"txt": b"t" * 5000})])
    dataset = open_dataset(tar(path), access=Access(opener))
    opener.store.spoil = lambda _url, _start, content, _times: content[:-1]
    with pytest.raises(ShardError, match="the shard is shorter than when it was indexed"):
        dataset.read_chunk(0)


def test_dots_in_names(tmp_path: Path) -> None:
    """Pain 43: WebDataset's rule unless told otherwise, and never a silent None."""
    names = ["dir.v1/22.05.seg.png", "song 2.0 (x).mp3", ".hidden.jpg"]
    path = write(tmp_path / "a.tar", *(member(name) for name in names))
    assert good(open_dataset(tar(path))) == [("dir.v1/22", {"05.seg.png": b"x"}), ("song 2", {"0 (x).mp3": b"x"})]
    assert good(open_dataset(tar(path, keys="last-dot"))) == [
        ("dir.v1/22.05.seg", {"png": b"x"}),
        ("song 2.0 (x)", {"mp3": b"x"}),
    ]


def test_a_field_that_each_third_sample_lacks(tmp_path: Path) -> None:
    """Pain 46: a sample has the fields it has; the op that wants another says so."""
    content = [(f"{row}", {"jpg": b"j", **({"json": b"{}"} if row % 3 else {})}) for row in range(9)]
    assert good(open_dataset(tar(write_tar(tmp_path / "a.tar", content)))) == content


def test_members_that_are_no_part_of_a_sample_are_left_out(tmp_path: Path) -> None:
    names = ["a.jpg", ".DS_Store", "__meta__/x.jpg", "a.cls", "b.jpg"]
    path = write(tmp_path / "a.tar", *(member(name) for name in names))
    assert good(open_dataset(tar(path))) == [("a", {"jpg": b"x", "cls": b"x"}), ("b", {"jpg": b"x"})]


def test_a_field_that_comes_twice_is_a_bad_sample(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", member("a.jpg"), member("a.JPG"), member("b.jpg"))
    with pytest.warns(StokerWarning, match="1 samples have a field twice"):
        dataset = open_dataset(tar(path))
    bad, fine = dataset.read_chunk(0)
    assert isinstance(bad, SampleError)
    assert bad.reason == "field 'jpg' in 'a.jpg' as well as 'a.JPG'"
    assert bad.origin is not None
    assert bad.origin.key == "a"
    assert isinstance(fine, RawSample)


def test_a_sparse_member_is_a_bad_sample(tmp_path: Path) -> None:
    sparse = tarfile.TarInfo("a.bin")
    sparse.type = tarfile.GNUTYPE_SPARSE
    path = write(tmp_path / "a.tar", sparse.tobuf(tarfile.GNU_FORMAT), member("b.jpg"))
    bad, fine = open_dataset(tar(path)).read_chunk(0)
    assert isinstance(bad, SampleError)
    assert "'a.bin' is a sparse file; pack it again without --sparse" in str(bad)
    assert isinstance(fine, RawSample)


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", member("bild-\udcff.jpg"), member("日本.jpg"))
    assert [key for key, _ in good(open_dataset(tar(path)))] == ["bild-\\xff", "日本"]


def test_what_is_wrong_is_said_at_every_opening(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes([("a", {"txt": b"1"}), ("b", {"txt": b"2"})])[:1536])
    for _ in range(2):
        with pytest.warns(StokerWarning, match=rf"file://{path}: is cut at byte 1536: its member 'b.txt'"):
            dataset = open_dataset(tar(path))
        assert [key for key, _ in good(dataset)] == ["a"]


def test_many_notices_are_few_warnings(tmp_path: Path) -> None:
    for shard in range(9):
        (tmp_path / f"{shard}.tar").write_bytes(b"")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_dataset(tar(tmp_path / "*.tar"))
    assert len(caught) == 6
    assert "and 4 more" in str(caught[-1].message)


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz", "a.tar"])
def test_gzip_shards_are_one_chunk_and_said_to_be_slow_once(tmp_path: Path, name: str) -> None:
    content = [(f"{row}", {"txt": b"t" * 600, "cls": b"1"}) for row in range(100)]
    for number in range(3):
        (tmp_path / f"{number}-{name}").write_bytes(gzip.compress(tar_bytes(content)))
    with pytest.warns(StokerWarning, match=r"and 2 more: gzip shards are read and decompressed whole") as caught:
        dataset = open_dataset(tar(tmp_path / f"*{name}", chunk_bytes=1000))
    assert len(caught) == 1
    assert dataset.chunks.num_rows.tolist() == [100] * 3
    assert dataset.chunks.size_bytes.tolist() == [100 * 2560] * 3
    assert good(dataset) == content * 3


def test_a_cut_gzip_shard_gives_its_whole_samples(tmp_path: Path) -> None:
    content = [(f"{row}", {"txt": b"%d" % row * 600}) for row in range(100)]
    packed = gzip.compress(tar_bytes(content))
    (tmp_path / "a.tgz").write_bytes(packed[: len(packed) // 2])
    with pytest.warns(StokerWarning) as caught:
        dataset = open_dataset(tar(tmp_path / "a.tgz"))
    said = [str(warning.message) for warning in caught]
    assert any("its gzip stream breaks off" in text for text in said)
    found = good(dataset)
    assert 10 < len(found) < 100
    assert found == content[: len(found)]


def test_an_empty_data_set(tmp_path: Path) -> None:
    dataset = open_dataset(tar(write_tar(tmp_path / "a.tar", [])))
    assert dataset.chunks.num_samples == 0
    assert good(dataset) == []


def test_errors_can_be_sent_to_another_process(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", member("a.jpg"), member("a.jpg"))
    with pytest.warns(StokerWarning):
        (bad,) = open_dataset(tar(path)).read_chunk(0)
    assert str(pickle.loads(pickle.dumps(bad))) == str(bad)
