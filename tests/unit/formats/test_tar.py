from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stoker.formats.tar import (
    BLOCK_BYTES,
    MAX_EXTENSION_BYTES,
    End,
    Member,
    NeedMore,
    Skipped,
    TarError,
    members,
    next_member,
)

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def packed(entries: list[tarfile.TarInfo], tar_format: int, **options: object) -> memoryview:
    """The archive without its end-of-archive marker: a run of whole members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tar_format, **options) as tar:  # type: ignore[call-overload]
        for entry in entries:
            tar.addfile(entry, io.BytesIO(body_of(entry)) if entry.isreg() else None)
        stop = out.tell()
    return memoryview(out.getvalue())[:stop]


def file(name: str, size: int = 3, **attributes: object) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    for attribute, value in attributes.items():
        setattr(entry, attribute, value)
    return entry


def body_of(entry: tarfile.TarInfo) -> bytes:
    return (entry.name.encode("utf-8", "surrogateescape") * (entry.size // max(len(entry.name), 1) + 1))[: entry.size]


def contents(run: memoryview, *, verify: bool = True) -> list[tuple[str, bytes]]:
    return [(item.name, bytes(run[item.body : item.body + item.size])) for item in members(run, verify=verify)]


def header(name: bytes, size: bytes, kind: bytes = b"0", *, magic: bytes = b"ustar\x0000", **extra: bytes) -> bytes:
    """A header made by hand; ``extra`` are ``at_<offset>=bytes``."""
    block = bytearray(BLOCK_BYTES)
    parts = {0: name, 100: b"0000644\0", 124: size, 156: kind, 257: magic}
    parts |= {int(key.removeprefix("at_")): value for key, value in extra.items()}
    for offset, value in parts.items():
        block[offset : offset + len(value)] = value
    return with_checksum(block)


def with_checksum(block: bytearray, *, signed: bool = False) -> bytes:
    block[148:156] = b" " * 8
    total = sum(byte - 256 if signed and byte > 127 else byte for byte in block)
    block[148:156] = b"%06o\0 " % total
    return bytes(block)


def pad(content: bytes) -> bytes:
    return content + bytes(-len(content) % BLOCK_BYTES)


def pax(**records: bytes) -> bytes:
    lines = b""
    for keyword, value in records.items():
        rest = b" " + keyword.replace("__", ".").encode() + b"=" + value + b"\n"
        length = len(rest) + 1
        while len(str(length)) + len(rest) != length:
            length += 1
        lines += str(length).encode() + rest
    return lines


def octal(value: int) -> bytes:
    return b"%011o\0" % value


NAMES = {
    "short": "a.jpg",
    "100 bytes": "n" * 96 + ".jpg",
    "101 bytes with a folder": "d" * 60 + "/" + "n" * 40 + ".jpg",
    "prefix and name full": "d" * 155 + "/" + "n" * 96 + ".jpg",
    "long": "d/" * 200 + "n" * 300 + ".jpg",
    "not ASCII": "märz/été-日本.jpg",
    "long and not ASCII": "日本/" * 60 + "語.jpg",
    "no UTF-8": "a\udcff\udc80.jpg",
    "spaces": " song 2.0 (x).mp3",
}
USTAR_REFUSES = {"long", "long and not ASCII"}
HELD = [(kind, name) for kind in NAMES for name in FORMATS if not (name == "ustar" and kind in USTAR_REFUSES)]


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("kind, tar_format", HELD)
def test_names_in_every_format(kind: str, tar_format: str, verify: bool) -> None:
    entries = [file(NAMES[kind], 700), file("next.txt", 0)]
    run = packed(entries, FORMATS[tar_format])
    assert contents(run, verify=verify) == [(NAMES[kind], body_of(entries[0])), ("next.txt", b"")]


@pytest.mark.parametrize("tar_format", FORMATS)
def test_what_is_no_regular_file_is_skipped(tar_format: str) -> None:
    kinds = [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
    entries = [
        file(f"x{number}", 0, type=kind, linkname="l" * (90 if tar_format == "ustar" else 150))
        for number, kind in enumerate(kinds)
    ]
    run = packed([file("a.txt"), *entries, file("b.txt", type=tarfile.CONTTYPE)], FORMATS[tar_format])
    assert [name for name, _ in contents(run)] == ["a.txt", "b.txt"]


def test_a_folder_of_an_old_tar_is_skipped() -> None:
    run = memoryview(
        header(b"folder/", octal(0), b"\0", magic=b"") + header(b"a.txt", octal(1), b"\0", magic=b"") + pad(b"x")
    )
    assert contents(run) == [("a.txt", b"x")]


def test_a_link_with_a_size_has_no_body() -> None:
    run = memoryview(header(b"link", octal(700), b"1") + header(b"a.txt", octal(1)) + pad(b"x"))
    assert contents(run) == [("a.txt", b"x")]


def test_an_unknown_type_is_skipped_with_its_body() -> None:
    run = memoryview(header(b"volume", octal(700), b"M") + bytes(1024) + header(b"a.txt", octal(1)) + pad(b"x"))
    assert contents(run) == [("a.txt", b"x")]


@pytest.mark.parametrize(
    "field, expected",
    [
        (b"00000000017\0", 15),
        (b"          17\0"[:12], 15),
        (b"17\0junk", 15),
        (b"17 \0", 15),
        (b"000000000017", 15),
        (b"\0" * 12, 0),
        (b"\x80" + (15).to_bytes(11, "big"), 15),
        (b"\x80" + (9 << 33).to_bytes(11, "big"), 9 << 33),
    ],
)
@pytest.mark.parametrize("verify", [True, False])
def test_sizes(field: bytes, expected: int, verify: bool) -> None:
    item = next_member(memoryview(header(b"a.txt", field)), verify=verify)
    assert item == Member("a.txt", 512, expected, 512 + -(-expected // 512) * 512, "")


@pytest.mark.parametrize("field", [b"0000000009x\0", b"\xff" * 12, b"xyz"])
def test_sizes_that_are_none(field: bytes) -> None:
    with pytest.raises(TarError, match="no tar header"):
        next_member(memoryview(header(b"a.txt", field)))


def test_size_above_8_gib_in_a_pax_header() -> None:
    entry = file("big.bin", 9 << 30)
    header_bytes = memoryview(entry.tobuf(tarfile.PAX_FORMAT))
    item = next_member(header_bytes)
    assert isinstance(item, Member)
    assert (item.name, item.size) == ("big.bin", 9 << 30)


def test_a_gnu_header_has_times_where_ustar_has_a_prefix() -> None:
    run = memoryview(header(b"a.txt", octal(1), magic=b"ustar  \0", at_345=b"14000000000\0") + pad(b"x"))
    assert contents(run) == [("a.txt", b"x")]
    old = memoryview(header(b"a.txt", octal(1), magic=b"", at_345=b"rest") + pad(b"x"))
    assert contents(old) == [("a.txt", b"x")]


def test_the_checksum_may_be_summed_over_signed_bytes() -> None:
    block = bytearray(header("é.txt".encode(), octal(0)))
    assert contents(memoryview(with_checksum(block, signed=True))) == [("é.txt", b"")]


def test_a_wrong_checksum_is_found_when_verified_only() -> None:
    block = bytearray(header(b"a.txt", octal(0)))
    block[0] ^= 1
    with pytest.raises(TarError, match="its checksum is"):
        next_member(memoryview(block))
    assert contents(memoryview(block), verify=False) == [("`.txt", b"")]


def test_the_end_is_one_block_of_zeros() -> None:
    assert next_member(memoryview(bytes(512))) == End()
    run = memoryview(header(b"a.txt", octal(0)) + bytes(512) + header(b"b.txt", octal(0)))
    assert contents(run) == [("a.txt", b"")]


def test_need_more_says_how_much() -> None:
    run = packed([file("first.txt", 600), file("d/" * 300 + "a.jpg")], tarfile.PAX_FORMAT)
    start = 512 + 1024
    assert next_member(run[:100]) == NeedMore(512)
    assert isinstance(next_member(run[:512]), Member), "the body need not be there"
    needed, steps = start, 0
    while isinstance(item := next_member(run[:needed], start), NeedMore):
        assert item.num_bytes > needed
        needed, steps = item.num_bytes, steps + 1
    assert isinstance(item, Member)
    assert item.name == "d/" * 300 + "a.jpg"
    assert steps == 2
    assert needed == item.body


def test_a_run_that_ends_inside_a_header() -> None:
    run = packed([file("a.txt"), file("d/" * 300 + "a.jpg")], tarfile.GNU_FORMAT)
    with pytest.raises(TarError, match="ends inside a header"):
        members(run[:2048])


@pytest.mark.parametrize("kind", ["global", "local"])
def test_pax_comments_are_passed_over(kind: str) -> None:
    if kind == "global":
        run = packed([file("a.txt")], tarfile.PAX_FORMAT, pax_headers={"comment": "x" * 2000})
    else:
        run = packed([file("a.txt", pax_headers={"comment": "x" * 2000, "mtime": "1.5"})], tarfile.PAX_FORMAT)
    assert contents(run) == [("a.txt", b"a.t")]


@pytest.mark.parametrize("keyword", ["path", "size", "GNU__sparse__map"])
def test_a_global_header_that_changes_members_is_refused(keyword: str) -> None:
    records = pax(**{keyword: b"7"})
    run = memoryview(header(b"g", octal(len(records)), b"g") + pad(records) + header(b"a.txt", octal(0)))
    with pytest.raises(TarError, match="global PAX header sets"):
        members(run)


@pytest.mark.parametrize("records", [b"99 path=a\n", b"x path=a\n", b"9 path=a ", b"7 path\n", b"0 path=a\n"])
def test_broken_pax_records(records: bytes) -> None:
    run = memoryview(header(b"x", octal(len(records)), b"x") + pad(records) + header(b"a.txt", octal(0)))
    with pytest.raises(TarError, match="broken PAX record"):
        members(run)


def test_a_pax_size_that_is_no_number() -> None:
    records = pax(size=b"-5")
    run = memoryview(header(b"x", octal(len(records)), b"x") + pad(records) + header(b"a.txt", octal(0)))
    with pytest.raises(TarError, match="PAX size that is no number"):
        members(run)


def test_an_extended_header_of_absurd_length() -> None:
    with pytest.raises(TarError, match="extended header of"):
        next_member(memoryview(header(b"x", octal(MAX_EXTENSION_BYTES + 1), b"x")))


def test_an_extended_header_without_a_member() -> None:
    run = memoryview(header(b"L", octal(5), b"L") + pad(b"name\0") + bytes(512))
    with pytest.raises(TarError, match="followed by the end"):
        members(run)


@pytest.mark.parametrize("first", ["pax", "gnu"])
def test_of_two_long_names_the_first_wins_as_in_tarfile(first: str) -> None:
    records = pax(path=b"from-pax")
    by_pax = header(b"x", octal(len(records)), b"x") + pad(records)
    by_gnu = header(b"L", octal(9), b"L") + pad(b"from-gnu\0")
    run = (by_pax + by_gnu if first == "pax" else by_gnu + by_pax) + header(b"a.txt", octal(1)) + pad(b"x")
    with tarfile.open(fileobj=io.BytesIO(run + bytes(1024))) as tar:
        expected = tar.getnames()
    assert [name for name, _ in contents(memoryview(run))] == expected == [f"from-{first}"]


def test_gnu_sparse_file_is_a_problem_of_its_member_alone() -> None:
    more = bytearray(512)
    more[504] = 1
    sparse = header(b"hole.bin", octal(600), b"S", magic=b"ustar  \0", at_482=b"\1", at_483=octal(1 << 20))
    run = memoryview(sparse + bytes(more) + bytes(512) + pad(b"y" * 600) + header(b"a.txt", octal(1)) + pad(b"x"))
    hole, after = members(run)
    assert "sparse" in hole.problem
    assert (hole.name, hole.body, hole.size) == ("hole.bin", 3 * 512, 600)
    assert (after.name, after.problem) == ("a.txt", "")
    assert isinstance(next_member(run[:600]), NeedMore)


def test_pax_sparse_file_is_a_problem_under_its_real_name() -> None:
    records = pax(GNU__sparse__major=b"1", GNU__sparse__name=b"hole.bin", path=b"GNUSparseFile.1/hole.bin")
    run = (
        header(b"x", octal(len(records)), b"x")
        + pad(records)
        + header(b"GNUSparseFile.1/hole.bin", octal(3))
        + pad(b"abc")
    )
    (hole,) = members(memoryview(run))
    assert hole.name == "hole.bin"
    assert "sparse" in hole.problem


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar command")
@pytest.mark.parametrize("tar_format", ["v7", "oldgnu", "gnu", "ustar", "pax"])
def test_what_the_tar_command_writes(tar_format: str, tmp_path: Path) -> None:
    top = tmp_path / "in"
    long_name = "x" * 90 if tar_format == "v7" else "long/" * 15 + "x" * 90
    wanted = {"a/b.txt": b"b" * 700, "c.txt": b"", f"{long_name}.txt": b"x", "ü.txt": b"u"}
    for name, content in wanted.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content)
    (top / "link").symlink_to("c.txt")
    subprocess.run(["tar", f"--format={tar_format}", "-cf", tmp_path / "out.tar", "-C", top, "."], check=True)
    found = contents(memoryview((tmp_path / "out.tar").read_bytes()))
    assert dict(found) == {f"./{name}": content for name, content in wanted.items()}


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar command")
@pytest.mark.parametrize("sparse_version", ["oldgnu", "0.0", "0.1", "1.0"])
def test_sparse_files_of_the_tar_command(sparse_version: str, tmp_path: Path) -> None:
    with (tmp_path / "hole.bin").open("wb") as out:
        for piece in range(40):  # more than fit into one header
            out.seek(piece << 17)
            out.write(b"x" * 100)
        out.truncate(8 << 20)
    (tmp_path / "z.txt").write_bytes(b"after")
    flags = (
        ["--format=oldgnu"] if sparse_version == "oldgnu" else ["--format=pax", f"--sparse-version={sparse_version}"]
    )
    command = ["tar", *flags, "-S", "-cf", "out.tar", "hole.bin", "z.txt"]
    subprocess.run(command, check=True, cwd=tmp_path)
    run = memoryview((tmp_path / "out.tar").read_bytes())
    found = [(item.name, bool(item.problem)) for item in members(run, verify=True)]
    if found[0] == ("hole.bin", False):
        pytest.skip("this file system has no holes")
    assert found == [("hole.bin", True), ("z.txt", False)]


name_parts = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=80)
names = st.lists(name_parts, min_size=1, max_size=5).map("/".join)
kinds = st.sampled_from([tarfile.REGTYPE] * 5 + [tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])
specs = st.lists(st.tuples(names, st.integers(0, 2000), kinds), max_size=6)


@settings(max_examples=200, deadline=None)
@given(specs, st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]), st.booleans())
def test_random_members_are_what_tarfile_reads(
    drawn: list[tuple[str, int, bytes]], tar_format: int, verify: bool
) -> None:
    # tarfile takes an old kind of file for a folder if its long name, cut off for the header, ends in a slash.
    assume(not any(kind == tarfile.AREGTYPE and name.encode()[:100].endswith(b"/") for name, _, kind in drawn))
    entries = [file(name, size, type=kind, linkname="t") for name, size, kind in drawn]
    for entry in entries:
        entry.size = entry.size if entry.isreg() else 0
    run = packed(entries, tar_format)
    with tarfile.open(fileobj=io.BytesIO(bytes(run) + bytes(1024))) as tar:
        expected = [(entry.name, tar.extractfile(entry).read()) for entry in tar if entry.isreg()]  # type: ignore[union-attr]
    assert contents(run, verify=verify) == expected


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=1500), st.integers(0, 1500))
def test_any_bytes_give_an_item_or_a_tar_error(noise: bytes, start: int) -> None:
    good = bytearray(header(b"a.txt", octal(5)) + pad(b"hello") + header(b"x", octal(12), b"x") + pad(b"12 path=abc\n"))
    good[start : start + len(noise)] = noise
    for verify in (True, False):
        with contextlib.suppress(TarError):
            item = next_member(memoryview(good), verify=verify)
            assert isinstance(item, (Member, Skipped, NeedMore, End))
            assert item.end >= BLOCK_BYTES if isinstance(item, (Member, Skipped)) else True
