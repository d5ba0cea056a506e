"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stoker.formats.source import Files, Parquet, Source, Tar
from stoker_service import arguments
from stoker_service.cli import Session, build_app
from support import parquet, shards


def stoker(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stoker_service", *arguments]
    roots = os.pathsep.join(
        str(Path(__file__).parents[3] / root) for root in ("loader", "service", "proto", "benchmarks")
    )
    variables = {**os.environ, "PYTHONPATH": roots, "COLUMNS": "100", **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)


def test_help_lists_the_plug_in_commands() -> None:
    shown = CliRunner().invoke(build_app(Session()), ["--help"])
    assert shown.exit_code == 0
    for command in ("index", "bench", "demo"):
        assert f" {command} " in shown.stdout


def test_version_is_that_of_the_distribution() -> None:
    shown = stoker("--version")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("stoker 0.")


def test_index_says_rows_shards_bytes_and_where_the_manifest_lies(tmp_path: Path) -> None:
    paths = shards.make_shards(tmp_path, (7, 11, 2), images=False)
    shown = CliRunner().invoke(build_app(Session()), ["index", "--json", str(tmp_path / "shard-{0000..0002}.tar")])
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert (found["rows"], found["shards"], found["scanned"]) == (20, 3, 3)
    assert found["bytes"] == sum(path.stat().st_size for path in paths)
    assert Path(found["manifest"].removeprefix("file://")).stat().st_size > 0


def test_index_scans_only_what_changed(tmp_path: Path) -> None:
    shards.make_shards(tmp_path, (7, 11, 2), images=False)
    pattern = str(tmp_path / "shard-*.tar")
    CliRunner().invoke(build_app(Session()), ["index", pattern])
    shards.write_tar(tmp_path / "shard-0001.tar", shards.samples([3], images=False)[0])
    again = json.loads(CliRunner().invoke(build_app(Session()), ["index", "--json", pattern]).stdout)
    assert (again["rows"], again["scanned"], again["kept"]) == (12, 1, 2)


def test_index_takes_parquet_shards(tmp_path: Path) -> None:
    pattern = parquet.make_shards(tmp_path, (7, 11), images=False)
    found = json.loads(CliRunner().invoke(build_app(Session()), ["index", "--json", pattern]).stdout)
    assert (found["rows"], found["shards"], found["scanned"], found["notices"]) == (18, 2, 2, [])
    parquet.write_shard(tmp_path / "shard-0001.parquet", [("new", {"cls": 1})])
    shown = stoker("index", pattern)
    assert shown.returncode == 0, shown.stderr
    assert "8 rows in 2 shards" in shown.stdout
    assert "(1 scanned, 1 known before)" in shown.stdout


@pytest.mark.parametrize(
    "urls, kind",
    [
        (["s3://b/x-*.parquet"], Parquet),
        (["https://h/x.parquet?sig=1", "x-{0,1}.parquet"], Parquet),
        (["x-{0.parquet,1.parquet}"], Parquet),
        (["x.tar.gz", "y.parquet"], Tar),
        (["pictures"], Files),
        (["parquet/"], Files),
    ],
    ids=str,
)
def test_what_urls_name(urls: list[str], kind: type[Source]) -> None:
    assert isinstance(arguments.source(urls), kind)


def test_index_lists_what_is_wrong_with_a_shard(tmp_path: Path) -> None:
    (path,) = shards.make_shards(tmp_path, (7,), images=False)
    path.write_bytes(path.read_bytes()[:6000])
    shown = stoker("index", str(path), "--manifest", str(tmp_path / "m.parquet"))
    assert shown.returncode == 0, shown.stderr
    assert "shard-0000.tar" in shown.stdout
    assert f"index: file://{tmp_path / 'm.parquet'}" in shown.stdout


def test_an_error_is_one_line_on_stderr_and_exit_code_1(tmp_path: Path) -> None:
    shown = stoker("index", str(tmp_path / "nothing-*.tar"))
    assert (shown.returncode, shown.stdout) == (1, "")
    assert shown.stderr.startswith("stoker: ")
    assert f"{tmp_path}/nothing-*.tar" in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


@pytest.mark.parametrize("asked", [{"arguments": ["--debug"]}, {"environment": {"STOKER_DEBUG": "1"}}], ids=str)
def test_debug_shows_the_traceback(asked: dict[str, dict[str, str]], tmp_path: Path) -> None:
    shown = stoker(
        *asked.get("arguments", []), "index", str(tmp_path / "nothing-*.tar"), **asked.get("environment", {})
    )
    assert shown.returncode == 1
    assert "Traceback" in shown.stderr


@pytest.mark.parametrize("arguments", [["index"], ["no-such-command"], ["index", "x.tar", "-o", "no-equals-sign"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    shown = stoker(*arguments)
    assert shown.returncode == 2
    assert "Traceback" not in shown.stderr


def test_the_command_starts_without_torch_or_the_benchmarks_heavy_parts() -> None:
    code = (
        "import sys, stoker_service.cli as c; c.build_app(c.Session()); print([m for m in sys.modules if m in HEAVY])"
    )
    code = code.replace("HEAVY", "('torch', 'cv2', 'pyarrow', 'obstore', 'PIL', 'numpy')")
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
