"""Keys and field names that can be split again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.convert.names import safe_field, safe_key, unused
from stoker.errors import SampleError
from stoker.formats.keys import first_dot

texts = st.text(st.characters(codec="utf-8"), max_size=12)
pathlike = st.text(st.sampled_from("a./_%\n~é "), max_size=12)


@given(st.one_of(texts, pathlike), st.one_of(texts, pathlike))
def test_a_name_is_split_where_it_was_joined(key: str, name: str) -> None:
    try:
        field = safe_field(name)
    except SampleError:
        return
    assert first_dot(f"{safe_key(key)}.{field}") == (safe_key(key), field)


@given(pathlike, pathlike)
def test_different_keys_stay_different(one: str, other: str) -> None:
    assert (safe_key(one) == safe_key(other)) == (one == other)


@pytest.mark.parametrize(
    "key,expected",
    [
        ("n01440764/n01440764_18", "n01440764/n01440764_18"),
        ("dir.v1/22.05", "dir.v1/22%2E05"),
        ("../../etc/passwd", "%2E%2E/%2E%2E/etc/passwd"),
        ("/etc/passwd", "%/etc/passwd"),
        (".hidden", "%2Ehidden"),
        ("__meta__/x", "%5F_meta__/x"),
        ("", "%"),
    ],
)
def test_keys(key: str, expected: str) -> None:
    assert safe_key(key) == expected


def test_fields_are_in_lower_case_with_dots_for_slashes() -> None:
    assert safe_field("image/Encoded") == "image.encoded"
    with pytest.raises(SampleError, match="no field can be made"):
        safe_field("..")


def test_a_key_that_is_taken_gets_a_number() -> None:
    used: set[str] = set()
    assert [unused(key, used) for key in ("a", "a~2", "a", "a", "b")] == ["a", "a~2", "a~3", "a~4", "b"]
