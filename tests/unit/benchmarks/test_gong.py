"""The four pipelines: that each is measured over each storage, and how the page shows them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoker_bench import compat_pictures
from stoker_bench.datasets import MadeShards, PhotoShards, make
from stoker_bench.gong import models, page, run
from stoker_bench.gpu import placements

TINY = replace(
    run.SHORT,
    batch_size=4,
    num_batches=2,
    profile="gcs,latency_ms=1,tail_ms=0",
    step_s=0.002,
    warm_up_steps=1,
    num_steps=3,
)
STEP = {
    "step_s": {"median": 0.05, "low": 0.04, "high": 0.06},
    "slower": {"median": 1.25, "low": 1.0, "high": 1.5},
    "images_per_s": {"median": 2500.0, "low": 2400.0, "high": 2600.0},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeShards:
    return make(PhotoShards(num_shards=2, rows_per_shard=12), tmp_path_factory.mktemp("gong") / "shards")


@pytest.fixture(scope="module")
def report(made: MadeShards) -> dict[str, Any]:
    said: list[str] = []
    found = run.run(made, TINY, None, said.append, settle=lambda: None)  # other tests run beside this one
    assert said
    return found


@pytest.mark.timeout(240)
def test_every_pipeline_is_measured_over_every_storage(report: dict[str, Any]) -> None:
    columns = {(each["storage"], each["layout"], each["placement"]): each for each in report["columns"]}
    assert len(columns) == len(run.STORAGES) * len(run.LAYOUTS) * len(page.PLACEMENTS)
    for (_, _, placement), column in columns.items():
        if placement == "mixed":
            assert column["missing"] == placements.missing_gpu(None)
        else:
            assert column["taken"]["images_per_s"]["low"] > 0
            assert 0 <= column["waited"]["share"]["median"] <= 1
    for read in report["reads"].values():
        assert read["bytes_per_image"] > 1000
    assert report["reads"]["store/shards"]["requests_per_image"] < report["reads"]["store/raw"]["requests_per_image"]
    for storage in run.STORAGES:
        assert columns[storage, "raw", "cpu"]["ratio"] == {"median": 1.0, "low": 1.0, "high": 1.0}


@pytest.mark.timeout(240)
def test_the_page_has_one_table_and_says_what_is_missing(report: dict[str, Any]) -> None:
    found = json.loads(json.dumps(report))
    shown = page.markdown(found)
    rows = [line for line in shown.splitlines() if line.startswith("| ") and not line.startswith("| read from")]
    assert len(rows) == len(report["columns"])
    assert sum("| CPU + GPU | no GPU" in row for row in rows) == len(run.STORAGES) * len(run.LAYOUTS)
    assert sum("| DALI on the CPU (stand-in) |" in row for row in rows) == len(run.STORAGES) * len(run.LAYOUTS)
    assert len({line.count("|") for line in shown.splitlines() if line.startswith("|")}) == 1


def test_raw_files_are_the_pictures_of_the_shards(made: MadeShards) -> None:
    raw = compat_pictures.files_of(made)
    with run._columns(made, raw, TINY, None) as columns:
        assert len(columns[0].cold) in {made.num_rows, len(made.shards)}
    assert len(list(raw.glob("*/*.jpg"))) == made.num_rows


def test_models_are_shown_with_how_much_slower_their_steps_are() -> None:
    found = {"resnet18": {"alone": STEP, "shards/mixed": STEP}, "resnet50": {"failed": "needs torchvision"}}
    shown = page._models(found)
    assert "| resnet18 | shards, CPU + GPU | 50.0 (40.0–60.0) | **1.25 (1.00–1.50)** | 2,500 (2,400–2,600) |" in shown
    assert shown[-1].startswith("| resnet50 |  | needs torchvision |")
    assert page._models({"missing": placements.NO_GPU})[0].endswith(f"{placements.NO_GPU}.")


def test_without_a_gpu_no_model_is_trained(tmp_path: Path) -> None:
    assert models.run("none.tar", tmp_path, models.Options(), None, print, lambda: None) == {
        "missing": placements.missing_gpu(None)
    }
