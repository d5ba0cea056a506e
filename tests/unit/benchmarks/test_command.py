"""``stoker bench`` gives the figures that it promises, on files and on an object store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stoker.errors import SpecError
from stoker_service.cli import Session, build_app
from support import parquet, shards
from support.servers import Bucket

FIGURES = {
    "batches",
    "samples",
    "samples_per_s",
    "read_mb_per_s",
    "made_mb_per_s",
    "wait_p50_s",
    "wait_p95_s",
    "wait_p99_s",
    "time_to_first_batch_s",
    "cpu_s_per_1000_samples",
    "peak_memory_bytes",
    "limited_by",
}


def bench(source: str, report: Path, *options: str) -> dict[str, Any]:
    arguments = ["bench", source, "--batch-size", "8", "--batches", "6", "--json", str(report), *options]
    shown = CliRunner().invoke(build_app(Session()), arguments, catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    assert "samples/s" in shown.stdout
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def test_the_report_holds_three_rates_with_all_figures(tmp_path: Path) -> None:
    paths = shards.make_shards(tmp_path / "shards", (12, 9))
    found = bench(str(tmp_path / "shards" / "shard-{0000..0001}.tar"), tmp_path / "out" / "report.json")
    assert found["schema"] == 1
    assert found["scenario"]["preset"] == "imagenet_train"
    assert found["machine"]["cores"] >= 1
    assert list(found["rates"]) == ["cold", "warm", "ceiling"]
    for rate in found["rates"].values():
        assert set(rate) == FIGURES
        assert (rate["batches"], rate["samples"]) == (6, 48)
        assert rate["samples_per_s"] > 0
        assert 0 <= rate["wait_p50_s"] <= rate["wait_p95_s"] <= rate["wait_p99_s"]
        assert rate["peak_memory_bytes"] > 1_000_000
    assert found["rates"]["cold"]["read_mb_per_s"] > 0
    assert sum(path.stat().st_size for path in paths) > 0


def test_parquet_shards_have_the_same_rates(tmp_path: Path) -> None:
    found = bench(parquet.make_shards(tmp_path / "shards", (12, 9)), tmp_path / "report.json")
    assert [(name, rate["samples"]) for name, rate in found["rates"].items()] == [
        ("cold", 48),
        ("warm", 48),
        ("ceiling", 48),
    ]


def test_an_object_store_has_a_warm_rate_from_a_copy(s3_bucket: Bucket, tmp_path: Path) -> None:
    for path in shards.make_shards(tmp_path / "shards", (12, 9)):
        s3_bucket.put(path.name, path.read_bytes())
    options = [f"-o{name}={value}" for name, value in s3_bucket.storage_options.items()]
    found = bench(f"{s3_bucket.url}/shard-{{0000..0001}}.tar", tmp_path / "report.json", *options)
    assert list(found["rates"]) == ["cold", "warm", "ceiling"]
    assert "secret" not in json.dumps(found)


def test_storage_can_be_made_to_misbehave_for_the_cold_rate(tmp_path: Path) -> None:
    shards.make_shards(tmp_path / "shards", (12, 9))
    source, chaos = str(tmp_path / "shards" / "shard-{0000..0001}.tar"), "latency_ms=300,sigma=0"
    found = bench(source, tmp_path / "report.json", "--chaos", chaos)
    assert found["scenario"]["chaos"] == chaos
    assert found["rates"]["cold"]["time_to_first_batch_s"] >= 0.3
    assert bench(source, tmp_path / "report.json")["scenario"]["chaos"] is None


def test_an_unknown_profile_is_wrong_usage(tmp_path: Path) -> None:
    shown = CliRunner().invoke(build_app(Session()), ["bench", str(tmp_path), "--chaos", "gsc"])
    assert shown.exit_code == 2
    assert "did you mean 'gcs'?" in shown.output


def test_a_source_with_too_few_samples_for_a_batch_says_so(tmp_path: Path) -> None:
    shards.make_shards(tmp_path / "shards", (3,))
    with pytest.raises(SpecError, match=r"gives no batch of 8; take a smaller --batch-size"):
        bench(str(tmp_path / "shards" / "shard-0000.tar"), tmp_path / "report.json")
