"""Arguments that would let nothing through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.errors import SpecError
from support.shards import make_shards


@pytest.mark.parametrize(
    "wrong",
    [{"num_threads": 0}, {"read_bytes": -1}, {"prefetch_bytes": -1}, {"timeout_s": 0}, {"num_workers": 2}],
    ids=str,
)
def test_an_impossible_limit_is_refused_by_its_name(tmp_path: Path, wrong: dict[str, Any]) -> None:
    make_shards(tmp_path, [3], images=False)
    pipeline = stoker.Pipeline(stoker.tar(tmp_path / "*.tar"), [], batch_size=1)
    with pytest.raises(SpecError, match=f"{next(iter(wrong))} is"):
        stoker.DataLoader(pipeline, **wrong)


def test_what_is_no_pipeline_is_refused_with_what_to_do() -> None:
    with pytest.raises(SpecError, match=r"expected a stoker.Pipeline, found str; for a URL take"):
        stoker.DataLoader("x.tar")  # type: ignore[arg-type]  # the mistake that is tested
