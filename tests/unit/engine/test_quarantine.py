"""The list of bad samples."""

from __future__ import annotations

import json
from pathlib import Path

from stoker.engine.quarantine import Quarantine
from stoker.errors import SampleError, SampleOrigin


def bad(row: int) -> SampleError:
    return SampleError("cut short", op="DecodeImage('jpg')", origin=SampleOrigin("s3://b/x.tar", row, f"k{row}"))


def test_each_bad_sample_is_listed_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "bad.jsonl"
    quarantine = Quarantine(path)
    quarantine.add([bad(3), bad(5)], epoch=0)
    quarantine.add([bad(5), bad(6)], epoch=1)
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [entry["row"] for entry in entries] == [3, 5, 6]
    assert entries[0] == {
        "url": "s3://b/x.tar",
        "row": 3,
        "key": "k3",
        "op": "DecodeImage('jpg')",
        "reason": "cut short",
        "epoch": 0,
    }


def test_without_a_path_nothing_is_written(tmp_path: Path) -> None:
    Quarantine(None).add([bad(1)], epoch=0)
    assert list(tmp_path.iterdir()) == []
