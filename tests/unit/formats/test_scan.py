from __future__ import annotations

import itertools
import random
import tarfile
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import ShardError
from stoker.formats.keys import SPLITS
from stoker.formats.scan import HOP_BYTES, Scan
from stoker.formats.window import Window
from support.shards import tar_bytes


def scan(content: bytes, span: int = 8 << 20) -> Scan:
    view = memoryview(content)
    window = Window(lambda start, stop: view[start:stop], len(content), span=span)
    made = Scan("file:///d/x.tar", window, len(content), SPLITS["first-dot"])
    made.run()
    return made


def rows(made: Scan) -> list[dict[str, Any]]:
    return list(made.rows.batch().to_pylist())


def sample(key: str, **fields: bytes) -> tuple[str, dict[str, bytes]]:
    return key, fields


THREE = [
    sample("a/0", jpg=b"j" * 600, cls=b"7"),
    sample("a/1", jpg=b"j" * 512, cls=b"-1\n"),
    sample("a/2", jpg=b"", cls=b"cat"),
]


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("span", [512, 1000, 8 << 20])
def test_rows_of_a_good_shard(tar_format: int, span: int) -> None:
    content = tar_bytes(THREE, tar_format)
    made = scan(content, span)
    assert made.notices == []
    found = rows(made)
    assert [(row["key"], row["fields"], row["label"]) for row in found] == [
        ("a/0", ["jpg", "cls"], 7),
        ("a/1", ["jpg", "cls"], -1),
        ("a/2", ["jpg", "cls"], None),
    ]
    assert [(row["offset"], row["size"]) for row in found] == [(0, 2560), (2560, 2048), (4608, 1536)]
    for row in found:
        assert row["crc32c"] == crc32c(content[row["offset"] : row["offset"] + row["size"]])


def test_digest_is_of_names_and_sizes() -> None:
    same = [sample("a/0", jpg=b"k" * 600, cls=b"8"), *THREE[1:]]
    other_size = [sample("a/0", jpg=b"k" * 601, cls=b"8"), *THREE[1:]]
    other_name = [sample("a/O", jpg=b"k" * 600, cls=b"8"), *THREE[1:]]
    digests = [scan(tar_bytes(content)).rows.digest for content in (THREE, same, other_size, other_name)]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


@pytest.mark.parametrize("content", [bytes(10240), bytes(512)])
def test_an_empty_tar_has_no_rows(content: bytes) -> None:
    made = scan(content)
    assert (rows(made), made.notices) == ([], [])


def test_no_bytes_at_all() -> None:
    made = scan(b"")
    assert rows(made) == []
    assert made.notices == ["is empty (0 bytes), as after a broken upload; make it again"]


WHOLE = tar_bytes(THREE, tarfile.PAX_FORMAT)


@pytest.mark.parametrize("stop", range(512, 6144, 512))
def test_cut_at_every_block(stop: int) -> None:
    made = scan(WHOLE[:stop])
    found = [row["key"] for row in rows(made)]
    # a/0 alone at the end is taken: no other row says that there should be more fields
    expected = {512: [], 1024: [], 1536: ["a/0"], 2048: []}
    after_first = ["a/0"] if stop < 4608 else ["a/0", "a/1"]
    assert found == expected.get(stop, after_first)
    (notice,) = made.notices
    assert f"is cut at byte {stop}" in notice


def test_cut_inside_a_body_drops_only_its_sample() -> None:
    made = scan(WHOLE[: 2048 + 512 + 512 + 100])
    assert [row["key"] for row in rows(made)] == ["a/0"]
    (notice,) = made.notices
    assert "its member 'a/1.jpg' at byte 2560 ends at byte 3584; its 1 whole samples are used" in notice


def test_cut_between_members_drops_the_sample_that_lacks_fields() -> None:
    made = scan(WHOLE[:3584])
    assert [row["key"] for row in rows(made)] == ["a/0"]
    assert "no end-of-archive marker at byte 3584" in made.notices[0]
    assert "'a/1', which has only jpg, is not" in made.notices[0]


def test_cut_after_a_sample_whose_fields_were_seen_before_takes_it() -> None:
    content = tar_bytes([sample("a", jpg=b"1", json=b"{}"), sample("b", jpg=b"2"), sample("c", jpg=b"3")])
    assert [row["key"] for row in rows(scan(content[:4096]))] == ["a", "b", "c"]


def test_cut_inside_the_padding_is_no_loss() -> None:
    content = tar_bytes([sample("a", txt=b"abc")])[:515]
    (row,) = rows(scan(content))
    assert (row["offset"], row["size"], row["crc32c"]) == (0, 515, crc32c(content))


def test_broken_in_the_middle() -> None:
    content = bytearray(WHOLE)
    content[2560:2660] = b"\xaa" * 100
    made = scan(bytes(content))
    assert [row["key"] for row in rows(made)] == ["a/0"]
    (notice,) = made.notices
    assert notice.startswith("is broken at byte 2560: no tar header")
    assert f"the {len(WHOLE) - 2560} bytes from there on are not" in notice


@pytest.mark.parametrize(
    "content, looks",
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(1000), "PNG picture; read folders of pictures with stoker.files()"),
        (b"PK\x03\x04" + b"x" * 1000, "zip archive"),
        (b"<!DOCTYPE html><html>Access Denied</html>" * 20, "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "git lfs pull"),
        (b"just a text\n" * 60, "text; narrow the pattern"),
        (b"\xde\xad\xbe\xef" * 200, "something else"),
        (b"tiny", "text"),
    ],
)
def test_no_tar_at_all(content: bytes, looks: str) -> None:
    with pytest.raises(ShardError) as caught:
        scan(content)
    assert str(caught.value).startswith("file:///d/x.tar is no tar: byte 0: ")
    assert looks in str(caught.value)


def test_data_after_the_end_are_ignored_and_said() -> None:
    first, second = tar_bytes(THREE[:1]), tar_bytes(THREE[1:])
    made = scan(first + second)
    assert [row["key"] for row in rows(made)] == ["a/0"]
    assert "has data after its end-of-archive marker at byte 2560" in made.notices[0]
    assert scan(first + bytes(1 << 20)).notices == []


def test_a_large_body_is_hopped_over() -> None:
    big = random.Random(0).randbytes(3 * HOP_BYTES)
    content = tar_bytes([sample("a", bin=big, txt=b"t"), sample("b", txt=b"t")])
    view = memoryview(content)
    read: list[tuple[int, int]] = []

    def spy(start: int, stop: int) -> memoryview:
        read.append((start, stop))
        return view[start:stop]

    made = Scan("u", Window(spy, len(content), span=1 << 20), len(content), SPLITS["first-dot"])
    made.run()
    first, second = rows(made)
    assert first["crc32c"] is None
    assert second["crc32c"] is not None
    assert (first["size"], first["fields"]) == (512 + len(big) + 1024, ["bin", "txt"])
    assert sum(stop - start for start, stop in read) < 2 << 20
    (again, _) = rows(scan(content, span=8 << 20))
    assert again["crc32c"] == crc32c(content[: again["size"]])


def test_the_offset_of_a_body_just_below_the_limit_is_read() -> None:
    body = bytes(HOP_BYTES + 4096)
    (row,) = rows(scan(tar_bytes([sample("a", bin=body)]), span=4096))
    assert row["crc32c"] is None
    (row,) = rows(scan(tar_bytes([sample("a", bin=body[:-5000])]), span=4096))
    assert row["crc32c"] is not None


def test_files_without_a_dot_are_counted_hidden_ones_are_not() -> None:
    content = tar_bytes([sample("a", jpg=b"1")])[:1024]
    named = b"".join(tar_member(name) for name in ("README", ".hidden.jpg", "d/.x", "LICENSE", "__meta__"))
    (notice,) = scan(content + named + bytes(1024)).notices
    assert notice == "2 files are left out, their names have no dot, such as 'README'"


def test_what_stands_between_members_of_one_sample_belongs_to_its_run() -> None:
    content = b"".join(tar_member(name) for name in ("a.jpg", "README", "a.cls", "LICENSE", "b.jpg"))
    first, second = rows(scan(content + bytes(1024)))
    assert (first["offset"], first["size"], second["offset"]) == (0, 3 * 1024, 4 * 1024)
    assert first["crc32c"] == crc32c(content[: 3 * 1024])
    assert second["crc32c"] == crc32c(content[4 * 1024 :])


def test_a_key_that_comes_again_makes_another_sample() -> None:
    made = scan(tar_bytes([sample("a", jpg=b"1"), sample("b", jpg=b"2"), sample("a", cls=b"3")]))
    assert [row["key"] for row in rows(made)] == ["a", "b", "a"]
    (notice,) = made.notices
    assert notice.startswith("1 samples have a key that was there before, such as 'a'")


def test_a_field_that_comes_twice_is_said() -> None:
    content = tar_member("a.jpg") + tar_member("a.JPG") + bytes(1024)
    (notice,) = scan(content).notices
    assert notice == "1 samples have a field twice, such as 'jpg' in 'a.jpg' as well as 'a.JPG'; they are bad samples"


def test_a_long_label_is_no_label() -> None:
    labels = [b"12", b"99999999999999999999", b"1" * 30, b"", b"3.5", b"\xff"]
    made = scan(tar_bytes([sample(str(i), cls=label) for i, label in enumerate(labels)]))
    assert [row["label"] for row in rows(made)] == [12, None, None, None, None, None]


def tar_member(name: str) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = 1
    return entry.tobuf(tarfile.USTAR_FORMAT) + b"x" + bytes(511)


fields = st.dictionaries(st.sampled_from(["jpg", "cls", "seg.png"]), st.binary(max_size=1100), min_size=1)


@settings(deadline=None, max_examples=60)
@given(st.lists(fields, max_size=5), st.sampled_from([512, 1536, 1 << 20]), st.data())
def test_a_cut_shard_never_gives_a_row_that_is_not_there(
    drawn: list[dict[str, bytes]], span: int, data: st.DataObject
) -> None:
    samples = [sample(f"k{i}", **content) for i, content in enumerate(drawn)]
    content = tar_bytes(samples)
    whole = rows(scan(content))
    assert [row["key"] for row in whole] == [key for key, _ in samples]
    stop = data.draw(st.integers(512, len(content)))
    found = rows(scan(content[:stop], span))
    complete = [row for row in whole if row["offset"] + row["size"] <= stop]
    ends = [row["offset"] + row["size"] for row in complete]
    if complete and found == complete[:-1] and stop - ends[-1] < 512:
        return  # cut just behind a row that has fewer fields than others: it is taken for cut
    assert found[: len(complete)] == complete
    assert len(found) <= len(complete) + 1
    for row in found[len(complete) :]:  # the last one, cut between members or inside its padding
        true = whole[len(complete)]
        assert row["fields"] == list(itertools.islice(true["fields"], len(row["fields"])))
