from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from stoker.errors import NotFoundError, SampleError, SampleOrigin, ShardError, SpecError, StorageError
from stoker.formats.dataset import Dataset
from stoker.formats.file_listing import parse
from stoker.formats.files import MAX_CHUNK_ROWS, FilesDataset
from stoker.formats.index import IndexProgress
from stoker.formats.open import build_manifest, open_dataset
from stoker.formats.source import files
from stoker.formats.stores import Access
from stoker.sample import RawSample
from support.counting import Opener
from support.servers import Bucket

Found = tuple[str, dict[str, bytes]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "stoker"


def put(top: Path, *names: str) -> Path:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(name.encode())
    return top


def read_all(dataset: Dataset) -> list[RawSample | SampleError]:
    return [sample for chunk in range(len(dataset.chunks.num_rows)) for sample in dataset.read_chunk(chunk)]


def good(dataset: Dataset) -> list[Found]:
    found = []
    for sample in read_all(dataset):
        assert isinstance(sample, RawSample), sample
        found.append((sample.origin.key, {name: bytes(content) for name, content in sample.fields.items()}))
    return found


CLASSES = ("cat/1.jpg", "cat/sub/2.JPEG", "cat-2/3.x.Png", "dog/4.jpg")


def test_class_folders_as_torchvision_numbers_them(tmp_path: Path) -> None:
    top = put(tmp_path / "d", *CLASSES, "dog/notes.txt", "dog/.5.jpg", ".git/6.jpg", "readme.md")
    dataset = open_dataset(files(top))
    assert isinstance(dataset, FilesDataset)
    assert dataset.classes == ("cat", "cat-2", "dog")
    assert sorted(good(dataset)) == [
        ("cat-2/3.x", {"png": b"cat-2/3.x.Png", "cls": b"1"}),
        ("cat/1", {"jpg": b"cat/1.jpg", "cls": b"0"}),
        ("cat/sub/2", {"jpeg": b"cat/sub/2.JPEG", "cls": b"0"}),
        ("dog/4", {"jpg": b"dog/4.jpg", "cls": b"2"}),
    ]
    origin = SampleOrigin(f"file://{top}/cat-2/3.x.Png", 0, "cat-2/3.x")
    assert origin in [sample.origin for sample in read_all(dataset)]
    assert dataset.origin(0, 0) == read_all(dataset)[0].origin


def test_classes_match_torchvision(tmp_path: Path) -> None:
    """``torchvision.datasets.folder``: ``find_classes`` and ``make_dataset``, in short."""
    top = put(tmp_path / "d", *CLASSES)
    classes = sorted(entry.name for entry in os.scandir(top) if entry.is_dir())
    theirs = {
        str(path): str(number)
        for number, name in enumerate(classes)
        for path in (top / name).rglob("*")
        if path.suffix.lower() in {".jpg", ".jpeg", ".png"}
    }
    ours = {
        sample.origin.url.removeprefix("file://"): bytes(sample.fields["cls"]).decode()
        for sample in read_all(open_dataset(files(top)))
        if isinstance(sample, RawSample)
    }
    assert ours == theirs


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    top = put(tmp_path / "d", "b.jpg", "a.png")
    assert good(open_dataset(files(top))) == [("a", {"png": b"a.png"}), ("b", {"jpg": b"b.jpg"})]


def test_labels_none_in_folders(tmp_path: Path) -> None:
    top = put(tmp_path / "d", "x/a.png", "b.jpg")
    found = good(open_dataset(files(top, labels="none")))
    assert sorted(found) == [("b", {"jpg": b"b.jpg"}), ("x/a", {"png": b"x/a.png"})]


@pytest.mark.parametrize("labels", ["auto", "folders"])
def test_pictures_beside_class_folders_are_an_error(tmp_path: Path, labels: str) -> None:
    top = put(tmp_path / "d", "x/a.png", "b.jpg")
    with pytest.raises(ShardError, match=r"such as 'b\.jpg'; move these away, or pass labels=\"none\""):
        open_dataset(files(top, labels=labels))


def test_named_classes_keep_their_numbers(tmp_path: Path) -> None:
    top = put(tmp_path / "val", "dog/4.jpg")
    ((_, fields),) = good(open_dataset(files(top, classes=("cat", "cow", "dog"))))
    assert fields["cls"] == b"2"
    with pytest.raises(SpecError, match=r"folder 'dog' below .* is none of the 1 classes"):
        open_dataset(files(top, classes=("cat",)))


def test_extensions(tmp_path: Path) -> None:
    top = put(tmp_path / "d", "a.npy", "b.NPY", "c.jpg", "d")
    assert [key for key, _ in good(open_dataset(files(top, extensions=(".NPY",))))] == ["a", "b"]


def test_nothing_found_says_what_is_there(tmp_path: Path) -> None:
    top = put(tmp_path / "d", "a.npy")
    with pytest.raises(NotFoundError, match=r"holds no file .* jpg, .*only other files, such as a\.npy"):
        open_dataset(files(top))
    with pytest.raises(NotFoundError, match="holds nothing"):
        open_dataset(files(tmp_path / "nowhere"))


def test_chunks_are_runs_of_files(tmp_path: Path) -> None:
    top = tmp_path / "d"
    top.mkdir()
    for number in range(10):
        (top / f"{number}.jpg").write_bytes(bytes(400))
    chunks = open_dataset(files(top, chunk_bytes=1000)).chunks
    assert chunks.num_rows.tolist() == [3, 2, 3, 2]
    assert chunks.size_bytes.tolist() == [1200, 800, 1200, 800]
    assert chunks.first_sample.tolist() == [0, 3, 5, 8]


def test_empty_files_make_no_endless_chunk(tmp_path: Path) -> None:
    top = tmp_path / "d"
    top.mkdir()
    for number in range(MAX_CHUNK_ROWS + 6):
        (top / f"{number:03d}.jpg").touch()
    dataset = open_dataset(files(top))
    assert dataset.chunks.num_rows.tolist() == [MAX_CHUNK_ROWS, 6]
    assert good(dataset)[0] == ("000", {"jpg": b""})


def test_a_file_that_is_gone_costs_its_sample_alone(tmp_path: Path) -> None:
    top = put(tmp_path / "d", "a.jpg", "b.jpg")
    dataset = open_dataset(files(top))
    (top / "a.jpg").unlink()
    bad, fine = dataset.read_chunk(0)
    assert isinstance(bad, SampleError)
    assert bad.origin == SampleOrigin(f"file://{top}/a.jpg", 0, "a")
    assert isinstance(bad.__cause__, NotFoundError)
    assert str(pickle.loads(pickle.dumps(bad)))
    assert isinstance(fine, RawSample)
    (top / "b.jpg").unlink()
    with pytest.raises(NotFoundError):
        dataset.read_chunk(0)


def test_the_listing_is_kept_until_something_changes(tmp_path: Path) -> None:
    top = put(tmp_path / "d", *CLASSES)
    (top / "empty").mkdir()

    def lists() -> bool:
        opener = Opener()
        open_dataset(files(top), access=Access(opener))
        return opener.store.num_listings > 0

    assert [lists(), lists()] == [True, False]
    put(top, "cat/sub/new.jpg")
    assert [lists(), lists()] == [True, False]
    put(top, "empty/first.jpg")
    assert [lists(), lists()] == [True, False]
    (top / "cat" / "1.jpg").rename(top / "cat" / "one.jpg")
    assert [lists(), lists()] == [True, False]
    put(top, "zebra/1.jpg")
    assert [lists(), lists()] == [True, False]
    (top / "zebra" / "1.jpg").unlink()
    (top / "zebra").rmdir()
    assert [lists(), lists()] == [True, False]


def test_another_rule_is_another_listing(tmp_path: Path) -> None:
    top = put(tmp_path / "d", "x/a.png", "x/b.jpg")
    place = str(tmp_path / "index.parquet")
    assert len(good(open_dataset(files(top, manifest=place)))) == 2
    assert len(good(open_dataset(files(top, manifest=place, extensions=("png",))))) == 1
    assert "cls" not in good(open_dataset(files(top, manifest=place, labels="none")))[0][1]


def test_a_moved_folder_is_the_same_data_set(tmp_path: Path) -> None:
    top = put(tmp_path / "d", *CLASSES)
    before = open_dataset(files(top)).fingerprint
    moved = top.rename(tmp_path / "e")
    opener = Opener()
    assert open_dataset(files(moved), access=Access(opener)).fingerprint == before
    assert opener.store.num_listings == 0
    (moved / "cat" / "1.jpg").write_bytes(b"longer than before")
    build_manifest(files(moved))
    assert open_dataset(files(moved)).fingerprint != before


def test_a_folder_in_a_loop_of_links(tmp_path: Path) -> None:
    top = put(tmp_path / "d", "x/a.jpg")
    (top / "x" / "again").symlink_to(top)
    assert [key for key, _ in good(open_dataset(files(top, labels="none")))] == ["x/a"]
    opener = Opener()
    open_dataset(files(top, labels="none"), access=Access(opener))
    assert opener.store.num_listings == 0


def test_a_name_that_is_no_utf8(tmp_path: Path) -> None:
    top = put(tmp_path / "d", "ü.jpg")
    (top / os.fsdecode(b"\xff.jpg")).touch()
    with pytest.raises(ShardError, match="is no UTF-8; rename the file"):
        open_dataset(files(top))


def test_progress_and_summary(tmp_path: Path) -> None:
    top = put(tmp_path / "d", *CLASSES)
    seen: list[IndexProgress] = []
    built = build_manifest(files(top), seen.append)
    assert seen[-1].rows_done == 4
    assert (built.num_scanned, built.num_kept) == (4, 0)
    (shard,) = built.manifest.shards
    assert (shard.num_rows, shard.size_bytes) == (4, sum(len(name) for name in CLASSES))
    assert built.manifest.url.startswith(f"file://{top}/.stoker-index-")


LISTING = """path,label
a.jpg,3
"with, comma.jpg",cat

sub/b.tar.png,
"""


def test_parse_csv() -> None:
    found = list(parse("list.csv", LISTING))
    assert found == [("a.jpg", "3"), ("with, comma.jpg", "cat"), ("sub/b.tar.png", None)]


def test_parse_lines_and_tabs() -> None:
    assert list(parse("list.txt", "a, b.jpg\nc.jpg\t7\n")) == [("a, b.jpg", None), ("c.jpg", "7")]
    assert list(parse("list.tsv", 'file\tcls\n"a".jpg\t1\n')) == [('"a".jpg', "1")]
    assert list(parse("list.lst", "path.jpg\nfile.png\n")) == [("path.jpg", None), ("file.png", None)]


@pytest.mark.parametrize(
    "text, message",
    [
        ("a.jpg,1,2\n", r"list.csv line 1: 3 columns"),
        ("a.jpg\nREADME,1\n", r"line 2: 'README' has no extension"),
    ],
)
def test_lines_that_are_wrong(text: str, message: str) -> None:
    with pytest.raises(ShardError, match=message):
        list(parse("list.csv", text))


def test_a_listing_file(tmp_path: Path) -> None:
    put(tmp_path / "d", "a.jpg", "with, comma.jpg", "sub/b.tar.png")
    put(tmp_path / "other", "c.jpg")
    listing = tmp_path / "d" / "list.csv"
    listing.write_text(LISTING + f"{tmp_path}/other/c.jpg,9\n")
    dataset = open_dataset(files(listing))
    assert good(dataset) == [
        ("a", {"jpg": b"a.jpg", "cls": b"3"}),
        ("with, comma", {"jpg": b"with, comma.jpg", "cls": b"cat"}),
        ("sub/b.tar", {"png": b"sub/b.tar.png"}),
        (f"file://{tmp_path}/other/c", {"jpg": b"c.jpg", "cls": b"9"}),
    ]
    before = dataset.fingerprint
    listing.write_text(LISTING)
    assert open_dataset(files(listing)).fingerprint != before


def test_a_listing_that_names_what_is_not_there(tmp_path: Path) -> None:
    put(tmp_path, "a.jpg")
    (tmp_path / "list.txt").write_text("a.jpg\nb.jpg\n")
    with pytest.raises(NotFoundError, match=r"b\.jpg"):
        open_dataset(files(tmp_path / "list.txt"))
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(ShardError, match="lists no file"):
        open_dataset(files(tmp_path / "empty.txt"))
    (tmp_path / "latin.txt").write_bytes("ü.jpg\n".encode("latin-1"))
    with pytest.raises(ShardError, match="no UTF-8 text: byte 0"):
        open_dataset(files(tmp_path / "latin.txt"))


def test_a_prefix_in_a_bucket(s3_bucket: Bucket) -> None:
    s3_bucket.put_many({f"p/{name}": name.encode() for name in CLASSES})
    s3_bucket.put("q/other.jpg", b"no")
    source = files(f"{s3_bucket.url}/p", storage_options=dict(s3_bucket.storage_options))
    dataset = open_dataset(source)
    assert sorted(key for key, _ in good(dataset)) == ["cat-2/3.x", "cat/1", "cat/sub/2", "dog/4"]
    assert sorted(fields["cls"] for _, fields in good(dataset)) == [b"0", b"0", b"1", b"2"]
    assert dataset.describe()["manifest"].startswith(f"{s3_bucket.url}/p/.stoker-index-")
    opener = Opener()
    assert open_dataset(source, access=Access(opener)).fingerprint == dataset.fingerprint
    assert opener.store.num_listings == 0
    s3_bucket.put("p/dog/5.jpg", b"new")
    assert open_dataset(source).chunks.num_samples == 4, "the kept listing is used until it is made again"
    assert build_manifest(source).manifest.num_rows == 5
    assert open_dataset(source).chunks.num_samples == 5


def test_a_listing_in_a_bucket(s3_bucket: Bucket) -> None:
    names = [f"{number}.jpg" for number in range(40)]
    s3_bucket.put_many({f"p/{name}": name.encode() for name in names})
    s3_bucket.put("p/list.txt", "\n".join(names).encode())
    dataset = open_dataset(files(f"{s3_bucket.url}/p/list.txt", storage_options=dict(s3_bucket.storage_options)))
    assert [fields["jpg"].decode() for _, fields in good(dataset)] == names


def test_a_bucket_that_is_not_there(s3_bucket: Bucket) -> None:
    source = files(f"{s3_bucket.url}-nowhere/p", storage_options=dict(s3_bucket.storage_options))
    with pytest.raises(StorageError, match="nowhere"):
        open_dataset(source)
