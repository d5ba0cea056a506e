"""Wildcards match as in a shell."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.storage.globs import compile_glob, escape, has_glob, literal_prefix, max_depth, unescape

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def matches(pattern: str, url: str) -> bool:
    return compile_glob(pattern).fullmatch(url) is not None


@pytest.mark.parametrize(
    "pattern, url",
    [
        ("s3://b/*.tar", "s3://b/x.tar"),
        ("s3://b/*", "s3://b/x"),
        ("s3://b/x*", "s3://b/x"),
        ("s3://b/?.tar", "s3://b/x.tar"),
        ("s3://b/[a-c][!x]", "s3://b/by"),
        ("s3://b/[]a]", "s3://b/]"),
        ("s3://b/[^x]", "s3://b/a"),
        ("s3://b/**/x.tar", "s3://b/x.tar"),
        ("s3://b/**/x.tar", "s3://b/c/d/x.tar"),
        ("s3://b/**", "s3://b/c/d/x.tar"),
        ("s3://b/*/d/*.tar", "s3://b/c/d/x.tar"),
        ("s3://b/.*", "s3://b/.hidden"),
        ("s3://b/\\*[*]", "s3://b/**"),
        ("s3://b/a b%20+(1).*", "s3://b/a b%20+(1).tar"),
        ("s3://b/[z-a]", "s3://b/[z-a]"),
        ("s3://b/[x", "s3://b/[x"),
        ("s3://b/x\n*", "s3://b/x\ny"),
    ],
)
def test_matches(pattern: str, url: str) -> None:
    assert matches(pattern, url)


@pytest.mark.parametrize(
    "pattern, url",
    [
        ("s3://b/*.tar", "s3://b/c/x.tar"),
        ("s3://b/*", "s3://b/"),
        ("s3://b/*", "s3://b/.hidden"),
        ("s3://b/?hidden", "s3://b/.hidden"),
        ("s3://b/[.]hidden", "s3://b/.hidden"),
        ("s3://b/**", "s3://b/c/.git/x"),
        ("s3://b/**/x", "s3://b/.git/x"),
        ("s3://b/?.tar", "s3://b/xy.tar"),
        ("s3://b/a?b", "s3://b/a/b"),
        ("s3://b/a[!x]b", "s3://b/a/b"),
        ("s3://b/x.tar", "s3://b/xxtar"),
        ("s3://b/*.TAR", "s3://b/x.tar"),
        ("s3://b/**/x.tar", "s3://b/cx.tar"),
    ],
)
def test_matches_not(pattern: str, url: str) -> None:
    assert not matches(pattern, url)


@given(NAMES)
def test_an_escaped_name_matches_itself(name: str) -> None:
    pattern = escape(name)
    assert not has_glob(pattern)
    assert unescape(pattern) == name == literal_prefix(pattern)
    assert matches(pattern, name)


@given(NAMES, st.sampled_from(["*", "?", "[a]", "**/x"]))
def test_every_match_begins_with_the_literal_prefix(name: str, wildcard: str) -> None:
    assert has_glob(escape(name) + wildcard)
    assert literal_prefix(escape(name) + wildcard) == name


@given(st.text("ab*?[]!^-/.\\{}&~|()", max_size=12), st.text("ab/.", max_size=6))
def test_any_text_is_a_pattern(pattern: str, url: str) -> None:
    assert isinstance(compile_glob(pattern), re.Pattern)
    matches(pattern, url)


@pytest.mark.parametrize(
    "pattern, depth",
    [("s3://b/*.tar", 0), ("s3://b/x?/y.tar", 1), ("s3://b/a/*/*/y.tar", 2), ("s3://b/**/y", None), ("s3://b/\\**", 0)],
)
def test_max_depth(pattern: str, depth: int | None) -> None:
    assert max_depth(pattern) == depth


@pytest.mark.parametrize("pattern", ["[?--]", "[a---]", "[--]"])
def test_hyphens_in_a_row_mean_a_hyphen(pattern: str) -> None:
    assert compile_glob(pattern).fullmatch("-")
