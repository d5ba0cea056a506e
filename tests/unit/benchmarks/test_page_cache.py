"""Forgetting a file's pages leaves its bytes as they were."""

from __future__ import annotations

from pathlib import Path

from stoker_bench import page_cache


def test_bytes_stay(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100_000)
    page_cache.forget([path])
    assert path.read_bytes() == b"x" * 100_000
