"""The check for stale generated code finds what is missing, changed or left over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GENERATE = Path(__file__).parents[3] / "proto" / "generate.py"
PROTO = 'syntax = "proto3";\npackage pack.v1;\nmessage Hello { string name = 1; }\n'


def run(root: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(GENERATE), "--root", str(root), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    pytest.importorskip("grpc_tools", reason="grpcio-tools 1.66.2 has no wheel for this Python", exc_type=ImportError)
    folder = tmp_path / "pack" / "v1"
    folder.mkdir(parents=True)
    (folder / "hello.proto").write_text(PROTO)
    return tmp_path


def test_missing_code_is_stale_until_it_is_generated(root: Path) -> None:
    before = run(root, "--check")
    assert before.returncode == 1
    assert "stale: pack/v1/hello_pb2.py;" in before.stderr
    assert run(root).returncode == 0
    after = run(root, "--check")
    assert (after.returncode, after.stderr) == (0, "")


def test_a_changed_proto_makes_its_code_stale(root: Path) -> None:
    assert run(root).returncode == 0
    (root / "pack" / "v1" / "hello.proto").write_text(PROTO.replace("name = 1", "title = 1"))
    assert run(root, "--check").returncode == 1


def test_code_without_a_proto_is_stale(root: Path) -> None:
    assert run(root).returncode == 0
    (root / "pack" / "v1" / "gone_pb2.py").write_text("")
    assert "stale: pack/v1/gone_pb2.py;" in run(root, "--check").stderr


def test_the_committed_code_is_fresh() -> None:
    assert run(GENERATE.parent, "--check").returncode == 0
