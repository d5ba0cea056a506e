"""What an answer tells of the version of an object."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from stoker.storage.versions import contradicts, strong_tag, version_of

MADE = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def meta(e_tag: str | None = None, version: str | None = None, last_modified: datetime | None = MADE) -> dict[str, Any]:
    return {"e_tag": e_tag, "version": version, "last_modified": last_modified, "size": 1, "path": "x"}


@pytest.mark.parametrize(
    "found, expected",
    [
        (meta('"abc"'), "abc"),
        (meta("abc"), "abc"),
        (meta(None, "17"), "17"),
        (meta(), "2026-11-30 12:00:00+00:00"),
        (meta(last_modified=None), ""),
    ],
)
def test_the_version_is_the_tag_else_a_number_else_a_time(found: dict[str, Any], expected: str) -> None:
    assert version_of(found) == expected


@pytest.mark.parametrize("e_tag, expected", [('"abc"', "abc"), ('W/"abc"', ""), (None, "")])
def test_a_weak_tag_does_not_stand_for_bytes(e_tag: str | None, expected: str) -> None:
    assert strong_tag(meta(e_tag)) == expected


@pytest.mark.parametrize(
    "version",
    ["", "abc", "17", "2026-11-30 12:00:00+00:00"],
)
def test_the_same_version_does_not_contradict(version: str) -> None:
    assert not contradicts(meta('"abc"', "17"), version)


@pytest.mark.parametrize("found", [meta('"abc"'), meta('W/"abc"'), meta(), meta(last_modified=None), meta(None, "17")])
def test_every_version_agrees_with_itself(found: dict[str, Any]) -> None:
    assert not contradicts(found, version_of(found))


@pytest.mark.parametrize("version", ["abd", "2026-11-30 12:00:01+00:00", "18"])
def test_another_version_contradicts(version: str) -> None:
    assert contradicts(meta('"abc"', "17"), version)


@pytest.mark.parametrize(
    "found, version",
    [(meta(None), "abc"), (meta('"abc"', last_modified=None), "2026-11-30 12:00:00+00:00"), (meta('W/"abc"'), "abc")],
)
def test_what_cannot_be_told_does_not_contradict(found: dict[str, Any], version: str) -> None:
    assert not contradicts(found, version)
