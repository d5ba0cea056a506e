"""What is run on a machine with a GPU: each part within its time, with reasons for what is left out."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker_bench.gpu import beside, page, parts, placements, resnet, running, turns
from stoker_bench.gpu.__main__ import main
from stoker_bench.gpu.beside import Steps
from stoker_bench.gpu.running import Asked, Ended, Part
from stoker_bench.gpu.training import Step, Trainer

RATED = {
    "titles": {"cpu": "cpu", "mixed": "DALI, mixed"},
    "taken": {
        "cpu": {
            "images_per_s": {"median": 2000.0, "low": 1900.0, "high": 2100.0},
            "copies_per_batch": {"median": 2.0, "low": 2.0, "high": 2.0},
            "copied_bytes_per_batch": {"median": 38_535_168.0, "low": 0.0, "high": 0.0},
            "gpu_bytes": {"median": 2.0**28, "low": 0.0, "high": 0.0},
        }
    },
    "ratios": {},
    "missing": {"mixed": "no GPU here: because\nof | this"},
    "num_rounds": 5,
    "num_batches": 24,
    "batch_size": 256,
}


def command(text: str) -> Any:
    """A part's command: a Python program."""
    return lambda _asked, _limit_s: [sys.executable, "-c", text]


def said(_asked: Asked, ended: Ended) -> dict[str, Any]:
    return {"code": ended.code, "said": ended.last_line}


def only(monkeypatch: pytest.MonkeyPatch, *own: Part) -> None:
    monkeypatch.setattr(running, "PARTS", own)


def test_a_part_that_hangs_or_crashes_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(
        monkeypatch,
        Part("hangs", 5.0, command("import signal; print('working', flush=True); signal.pause()"), said),
        Part("crashes", 60.0, command("import os; os.abort()"), said),
        Part("works", 60.0, command("print('well')"), said),
    )
    found = running.run(Asked(None, tmp_path, budget_s=600.0), lambda _: None)
    assert found["hangs"]["failed"].startswith("it took longer than 5 s: ")
    assert found["crashes"]["code"] < 0
    assert found["works"] == {"code": 0, "said": "well"}
    assert running.failed(found) == ["hangs"]
    assert (tmp_path / "gpu.log").read_text().endswith("well\n")


def test_what_there_is_no_time_for_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, Part("late", 60.0, command("print('well')"), said))
    found = running.run(Asked(None, tmp_path, budget_s=1.0), lambda _: None)
    assert found["late"] == {"failed": "no time was left"}


def test_tests_are_counted_and_skips_are_no_failure() -> None:
    output = "ss\nSKIPPED [2] tests/gpu/test_large.py:63: no GPU\n3 passed, 2 skipped in 1.23s\n"
    asked = Asked(None, Path())
    assert running._tested(asked, Ended(0, output)) == {
        "counts": {"passed": 3, "skipped": 2},
        "lines": ["SKIPPED [2] tests/gpu/test_large.py:63: no GPU"],
    }
    assert running._tested(asked, Ended(1, "1 failed in 2s"))["failed"] == "exit code 1: 1 failed in 2s"


def test_the_machine_is_described_by_a_process_of_its_own(tmp_path: Path) -> None:
    code = main(["--part=machine", "--short", f"--out={tmp_path}"])
    assert code == 0
    report = json.loads((tmp_path / "bench-gpu.json").read_text())
    assert report["machine"]["cores"] >= 1
    assert "GPU: " in (tmp_path / "bench-gpu.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench-gpu.json", "bench-gpu.md", "gpu.log"]


def test_the_page_shows_copies_memory_and_reasons() -> None:
    shown = page.markdown({"device": "cuda:0", "rates": RATED, "step": {"missing": "no GPU"}, "tests": {"failed": "x"}})
    assert "| cpu | 2,000 (1,900–2,100) |  | 2.0 | 38.5 | 256 |" in shown
    assert "| DALI, mixed | no GPU here: because of / this | | | |  |" in shown
    assert "Left out: no GPU." in shown
    assert "Failed: x." in shown


def test_rates_are_measured_where_they_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = parts.measure_rates(parts.Options.short(None, 60.0), lambda _: None)
    assert set(found["taken"]) == {"cpu", "dali-cpu"}
    assert set(found["missing"]) == {"split", "mixed", "all-gpu"}
    assert "failed" not in found
    json.dumps(found)


def test_a_way_that_fails_is_left_out_with_its_reason() -> None:
    def broken() -> float:
        raise RuntimeError("no such thing")

    found, failed = turns.in_turn({"a": lambda: 1.0, "b": broken}, 3, lambda *_: None, lambda: None)
    assert found == {"a": [1.0, 1.0, 1.0]}
    assert failed == {"b": "RuntimeError: no such thing"}


def test_no_round_begins_when_the_time_is_over() -> None:
    found, _ = turns.in_turn({"a": lambda: 1.0, "b": lambda: 2.0}, 3, lambda *_: None, lambda: None, time.monotonic())
    assert found == {"a": [1.0], "b": [2.0]}


def test_the_plain_resnet_is_that_of_the_paper() -> None:
    model = resnet.resnet50()
    assert sum(weights.numel() for weights in model.parameters()) == 25_557_032
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 1000)


def test_steps_are_measured_beside_loaders_of_bytes_and_of_floats() -> None:
    trainer = Trainer(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 5)), "cpu")
    steps = Steps(batch_size=2, size=8, num_rounds=2, warm_up=1, num_steps=2)
    batch = trainer.batch(2, 8)
    floats = {**batch, "image": torch.zeros(2, 3, 8, 8)}

    class Same:
        """A loader of one batch."""

        def __init__(self, batch: Any) -> None:
            self._batch = {**batch, "__key__": ["a", "b"]}

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *rest: object) -> None: ...

        def __iter__(self) -> Any:
            return iter([self._batch])

    told: list[tuple[str, Step]] = []
    ways: Any = {"bytes": lambda: Same(batch), "floats": lambda: Same(floats)}
    found = beside.measure(trainer, ways, steps, lambda *told_of: told.append(told_of), lambda: None)
    assert set(found) == {"alone", "bytes", "floats"}
    assert all(figures["step_s"]["low"] > 0 for figures in found.values())
    assert found["alone"]["slower"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert len(told) == 6


def test_placements_say_why_they_cannot_be_measured() -> None:
    missing = {each.name: each.missing for each in placements.all_of(None)}
    assert missing["cpu"] is None
    assert missing["mixed"] == placements.missing_gpu(None)
    if not torch.cuda.is_available():
        assert placements.missing_gpu("cuda:0") == placements.NO_GPU
