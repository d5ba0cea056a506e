"""Workers of torch datasets share what is large; descriptors and /dev/shm do not matter (pains 22, 23, 25)."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from support.compat_programs import run


def test_private_memory_does_not_grow() -> None:
    """Pain 22: 2 million texts in a plain list, 4 workers: their private memory grows by < 5 % over 3 epochs."""
    ended = run("paths", "2000000", "4")
    assert ended.returncode == 0, ended.stderr
    first, *private_kb, num_workers = (json.loads(line) for line in ended.stdout.splitlines())
    assert num_workers == 4
    assert len(private_kb) == 3
    assert max(private_kb) < 1.05 * private_kb[0]
    assert private_kb[-1] - first < 0.05 * 4 * 150_000  # of what the list would be in each of them, 150 MB and more


def test_kept_batches_hold_no_descriptors() -> None:
    """Pain 25: with 128 descriptors allowed, 2,000 batches can be kept, and their number does not grow."""
    ended = run("keep_batches", "2000")
    assert ended.returncode == 0, ended.stderr
    num_kept, total, counts = json.loads(ended.stdout)
    assert num_kept == 2000
    assert total == 4000 * 3999 // 2
    assert max(counts) == min(counts) < 64


def test_a_tiny_dev_shm() -> None:
    """Pain 23: batches of 100 MiB with 64 KiB of /dev/shm: no bus error, and nothing lies there."""
    mount = 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"'
    under = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh")
    if shutil.which("unshare") is None or subprocess.run([*under, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no mount namespaces")
    ended = run("large_batches", under=under)
    assert ended.returncode == 0, ended.stderr
    assert [json.loads(line) for line in ended.stdout.splitlines()] == [65536, [0, 100, 200, 300], []]
