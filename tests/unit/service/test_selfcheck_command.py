"""``stoker selfcheck`` as a process: what it prints, its exit codes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from stoker.backends.tolerances import TOLERANCES
from stoker_service.commands.selfcheck import scaled
from support import commands


def selfcheck(*arguments: str) -> subprocess.CompletedProcess[str]:
    with commands.stoker("selfcheck", *arguments) as running:
        out, _ = running.process.communicate(timeout=120)
        return subprocess.CompletedProcess(arguments, running.process.returncode, out.decode(), running.stderr())


def test_all_is_well_here(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = selfcheck("--device=cpu", f"--json={report}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all within what is published" in done.stdout
    assert "not here: dali, GPU: --device cpu leaves it out" in done.stdout
    assert "made by: stoker " in done.stdout
    found = json.loads(report.read_text())
    assert found["is_good"] is True
    assert {finding["chain"] for finding in found["findings"]} == {tolerance.chain for tolerance in TOLERANCES}


def test_beyond_a_tolerance_is_exit_code_1() -> None:
    done = selfcheck("--device=cpu", "--factor=0.05")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "beyond: bilinear, dali, CPU beside cpu: " in done.stdout
    assert "more; --verbose names them" in done.stdout


@pytest.mark.parametrize("device", ["cuda:99", "tpu"])
def test_a_device_that_is_not_here_is_wrong_usage(device: str) -> None:
    done = selfcheck(f"--device={device}")
    assert done.returncode == 2
    assert "device" in done.stderr


def test_a_factor_applies_to_every_limit() -> None:
    tolerance = TOLERANCES[2]
    half = scaled(tolerance, 0.5)
    assert half.dali.border == (tolerance.dali.border or 0) / 2
    assert (half.gpu.mean, half.mixed.max) == (tolerance.gpu.mean / 2, tolerance.mixed.max / 2)
    assert scaled(half, 2) == tolerance
