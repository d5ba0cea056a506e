"""``stoker demo`` trains on pictures it makes, writes a contact sheet, and says what limits."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from stoker_bench.demo import LoopResult, verdict
from stoker_service.cli import Session, build_app


def test_the_demo_runs_from_nothing(tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.png"
    arguments = [
        "demo",
        "--steps",
        "4",
        "--batch-size",
        "8",
        "--pictures",
        "24",
        "--step-ms",
        "0",
        "--sheet",
        str(sheet),
    ]
    shown = CliRunner().invoke(build_app(Session()), arguments, catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    assert "images/s" in shown.stdout
    assert str(sheet) in shown.stdout.replace("\n", "")
    assert "limits:" in shown.stdout
    with Image.open(sheet) as image:
        assert image.size == (8 * 228 + 4, 228 + 4)


@pytest.mark.parametrize(
    "limited_by, words",
    [
        ("trainer", "The training step limits: the loop waited 25 % of the time, so a faster loader"),
        (
            "decode",
            "Decoding limits: the loop waited 25 % of the time for pictures to be decoded; one core decodes 500",
        ),
        ("storage", "Reading limits: the loop waited 25 % of the time for bytes"),
    ],
)
def test_the_verdict_names_what_was_waited_for(limited_by: str, words: str) -> None:
    stats = {"limited_by": limited_by, "samples": 1000, "decode_s": 2.0}
    assert verdict(LoopResult(10, 640, 4.0, 1.0, 90.0, stats)).startswith(words)
