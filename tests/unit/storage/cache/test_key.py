"""What has one name, and what has not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker.storage.cache.key import DIGEST_BYTES, digest_of
from stoker.storage.store import ObjectRange

RANGE = ObjectRange("s3://bucket/a.tar", 0, 10, "v1", "http://server")
SIGNED = "https://host/a.tar?X-Amz-Date=20260101&id=7&X-Amz-Signature=abc"


def test_the_same_range_has_the_same_name() -> None:
    assert digest_of(RANGE) == digest_of(replace(RANGE))
    assert len(digest_of(RANGE)) == DIGEST_BYTES


@pytest.mark.parametrize(
    "changes",
    [{"url": "s3://bucket/b.tar"}, {"start": 1}, {"stop": 11}, {"version": "v2"}, {"endpoint": "http://other"}],
)
def test_any_difference_makes_another_name(changes: dict[str, object]) -> None:
    assert digest_of(RANGE) != digest_of(replace(RANGE, **changes))  # type: ignore[arg-type]


def test_fields_do_not_run_into_one_another() -> None:
    one = ObjectRange("s3://b/a", 0, 1, "1v", "x")
    assert digest_of(one) != digest_of(replace(one, url="s3://b/a1", version="v"))


def test_signatures_of_web_addresses_do_not_count_but_the_rest_of_the_query_does() -> None:
    one = replace(RANGE, url=SIGNED)
    assert digest_of(one) == digest_of(replace(RANGE, url=SIGNED.replace("abc", "def").replace("2026", "2027")))
    assert digest_of(one) != digest_of(replace(RANGE, url=SIGNED.replace("id=7", "id=8")))


def test_a_key_may_look_like_a_query() -> None:
    assert digest_of(replace(RANGE, url="s3://b/a?sig=1")) != digest_of(replace(RANGE, url="s3://b/a?sig=2"))
