from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.formats.keys import first_dot, last_dot

NAMES = [
    ("a.jpg", ("a", "jpg"), ("a", "jpg")),
    ("dir.v1/22.05.seg.png", ("dir.v1/22", "05.seg.png"), ("dir.v1/22.05.seg", "png")),
    ("song 2.0 (x).mp3", ("song 2", "0 (x).mp3"), ("song 2.0 (x)", "mp3")),
    ("./a/b.Left.JPG", ("./a/b", "left.jpg"), ("./a/b.Left", "jpg")),
    ("ends.", ("ends", ""), ("ends", "")),
    (".hidden.jpg", None, None),
    ("a/.hidden.jpg", None, None),
    ("a/.DS_Store", None, None),
    ("README", None, None),
    ("dir.v1/README", None, None),
    ("__MACOSX/._a.jpg", None, None),
    ("__meta__", None, None),
    ("__meta__/a.jpg", None, None),
    ("_a_.jpg", ("_a_", "jpg"), ("_a_", "jpg")),
    ("__a.jpg", ("__a", "jpg"), ("__a", "jpg")),
    ("bild-ä.jpg", ("bild-ä", "jpg"), ("bild-ä", "jpg")),
    ("", None, None),
]


@pytest.mark.parametrize("name, first, last", NAMES)
def test_both_rules(name: str, first: tuple[str, str] | None, last: tuple[str, str] | None) -> None:
    assert first_dot(name) == first
    assert last_dot(name) == last


def webdataset(name: str) -> tuple[str, str] | None:
    """What WebDataset 1.0.2 does: ``tar_file_iterator``, ``base_plus_ext`` and the lower case of ``group_by_keys``."""
    if "/" not in name and name.startswith("__") and name.endswith("__"):
        return None
    if re.match(r"__[^/]*__($|/)", name):
        return None
    match = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", name)
    return (match.group(1), match.group(2).lower()) if match else None


@given(st.text("ab._/A", max_size=12))
def test_first_dot_is_webdatasets_rule(name: str) -> None:
    base = name.rpartition("/")[2]
    if not base.startswith("."):  # the one difference, see keys.py
        assert first_dot(name) == webdataset(name)


@given(st.text("ab._/é\udcff", max_size=12))
def test_a_key_can_always_be_stored(name: str) -> None:
    for split in (first_dot(name), last_dot(name)):
        if split is not None:
            split[0].encode()
            split[1].encode()


def test_bytes_that_are_no_utf8_stay_distinct() -> None:
    assert first_dot("a\udcff.jpg") == ("a\\xff", "jpg")
    assert first_dot("a\udcfe.jpg") == ("a\\xfe", "jpg")
