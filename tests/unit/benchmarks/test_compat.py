"""The figures of torch datasets: that they are measured, and how the page shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker_bench import compat
from stoker_bench.compat import Options
from stoker_bench.compat_data import paths
from stoker_bench.datasets import PhotoShards, make

TINY = Options(
    num_rounds=1, num_batches=1, batch_size=2, num_workers=1, num_small=64, heavy_bytes=400_000, num_paths=60_000
)


@pytest.mark.filterwarnings("ignore:The image decoding and encoding capabilities of TorchVision:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_every_part_is_measured_and_shown(tmp_path: Path) -> None:
    made = make(PhotoShards(num_shards=1, rows_per_shard=8), tmp_path / "shards")
    said: list[str] = []
    report = compat.run(made, TINY, said.append, settle=lambda: None)  # other tests run beside this one
    assert set(report) == {"options", *compat.PARTS}
    assert all(ratio["low"] > 0 for ratio in report["pictures"]["ratios"].values())
    assert len(report["memory"]["stoker"]) == 4
    shown = compat.markdown(report)
    for text in (
        "ImageFolder, Pillow",
        "our threads",
        "64 small tensors, batches of 1 ",
        "second epoch",
        "60,000 paths",
    ):
        assert text in shown


def test_paths_are_distinct_and_as_long_as_those_of_image_folders() -> None:
    found = paths(1000)
    assert len(set(found)) == 1000
    assert {len(path) for path in found} == {54}
