"""Wheels are cut to be carried, and are only used if they are whole again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "gpu.sh"
LARGE, SMALL = "large-1.0-py3-none-any.whl", "small-1.0-py3-none-any.whl"
LARGE_BYTES = 120 << 20


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(SCRIPT), *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with what look like wheels, one of them large, which were split."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with (folder / LARGE).open("wb") as large:
        large.truncate(LARGE_BYTES)
    (folder / SMALL).write_bytes(b"small")
    done = script("split", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def test_large_wheels_become_parts_with_sums(wheels: Path) -> None:
    parts = sorted(path.name for path in wheels.glob(f"{LARGE}*"))
    assert parts == [f"{LARGE}.part-aa", f"{LARGE}.part-ab", f"{LARGE}.part-ac"]
    sizes = [(wheels / part).stat().st_size for part in parts]
    assert sum(sizes) == LARGE_BYTES
    assert max(sizes) <= 60 << 20
    assert (wheels / SMALL).read_bytes() == b"small"
    assert [line.split()[1] for line in (wheels / "SHA256SUMS").read_text().splitlines()] == [LARGE, SMALL]


def test_a_part_that_is_not_what_it_was_is_refused(wheels: Path, tmp_path: Path) -> None:
    with (wheels / f"{LARGE}.part-ab").open("r+b") as part:
        part.write(b"x")
    done = script("run", str(wheels), "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert f"{LARGE}: FAILED" in done.stdout
    assert "not those that were split" in done.stderr


def test_stokers_own_wheel_must_be_among_them(wheels: Path, tmp_path: Path) -> None:
    done = script("run", str(wheels), "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert f"no wheel of stoker in {wheels}" in done.stderr


def test_a_wrong_call_says_what_is_right() -> None:
    for arguments in ([], ["split"], ["run"], ["join", "x"], ["run", "x", "--colour"]):
        done = script(*arguments)
        assert done.returncode == 2, arguments
        assert "benchmarks/gpu.sh run DIR" in done.stderr
