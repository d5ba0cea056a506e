"""Brace patterns mean what WebDataset and bash mean by them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import SpecError
from stoker.storage.braces import expand_braces

PLAIN = st.text("abz09-_/.% *?[]", max_size=4)


@pytest.mark.parametrize(
    "pattern, expected",
    [
        ("x", ["x"]),
        ("", [""]),
        ("{0..3}", ["0", "1", "2", "3"]),
        ("{000..002}", ["000", "001", "002"]),
        ("{8..011}", ["008", "009", "010", "011"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{0..10..5}", ["0", "5", "10"]),
        ("{-1..1}", ["-1", "0", "1"]),
        ("{-01..1}", ["-01", "000", "001"]),
        ("{a..c}", ["a", "b", "c"]),
        ("{a,b}", ["a", "b"]),
        ("{a,}", ["a", ""]),
        ("{a,b}{0..1}", ["a0", "a1", "b0", "b1"]),
        ("p{a,b{0..1},{x,y}z}q", ["paq", "pb0q", "pb1q", "pxzq", "pyzq"]),
        ("{x}", ["{x}"]),
        ("{}", ["{}"]),
        ("{x{a,b}}", ["{xa}", "{xb}"]),
        ("a,b", ["a,b"]),
        (r"\{a,b\}", [r"\{a,b\}"]),
        (r"{a\,b,c}", [r"a\,b", "c"]),
        ("{1..2..x}", ["{1..2..x}"]),
        ("sp ace{1..2}%20", ["sp ace1%20", "sp ace2%20"]),
    ],
)
def test_words(pattern: str, expected: list[str]) -> None:
    assert list(expand_braces(pattern)) == expected


def test_imagenet_as_webdataset_names_it() -> None:
    words = list(expand_braces("s3://b/imagenet-train-{000000..000146}.tar"))
    assert (len(words), words[0], words[-1]) == (
        147,
        "s3://b/imagenet-train-000000.tar",
        "s3://b/imagenet-train-000146.tar",
    )


@pytest.mark.parametrize("pattern, words", [("a{b", "character 1"), ("a}b", "character 1"), ("{a,{b}", "character 0")])
def test_unbalanced(pattern: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        list(expand_braces(pattern))


def test_a_step_of_zero() -> None:
    with pytest.raises(SpecError, match="steps of 0"):
        list(expand_braces("{1..5..0}"))


def test_a_slip_that_means_billions_is_refused_at_once() -> None:
    with pytest.raises(SpecError, match="stands for 100000000000000000000 URLs"):
        expand_braces("{0..9999999999}{0..9999999999}")


@given(st.lists(st.tuples(PLAIN, st.lists(PLAIN, min_size=2, max_size=3)), max_size=4), PLAIN)
def test_choices_are_a_product_in_order(parts: list[tuple[str, list[str]]], tail: str) -> None:
    pattern = "".join(before + "{" + ",".join(words) + "}" for before, words in parts) + tail
    factors = [[before + word for word in words] for before, words in parts]
    assert list(expand_braces(pattern)) == ["".join(words) + tail for words in itertools.product(*factors)]


@given(st.integers(0, 3000), st.integers(0, 50), st.integers(1, 6))
def test_numbers_are_padded_to_the_wider_end(first: int, length: int, width: int) -> None:
    numbers = range(first, first + length + 1)
    pattern = f"{{{first:0{width}d}..{first + length:0{width}d}}}"
    assert list(expand_braces(pattern)) == [f"{number:0{width}d}" for number in numbers]
