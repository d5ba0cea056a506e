"""What a script defines, in another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CACHED = """
import functools
from stoker.compat import DataLoader

@functools.lru_cache(maxsize=7)
def load(index):
    return index * 2

class Data:
    def __len__(self):
        return 4
    @functools.lru_cache
    def own(self, index):
        return load(index)
    def __getitem__(self, index):
        return self.own(index), load.cache_parameters()["maxsize"]

print([batch[0].tolist() for batch in DataLoader(Data(), batch_size=2, num_workers=1)])
"""

SPAWNED = """
import multiprocessing
from stoker.compat import DataLoader

class Data:
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return index

def main():
    for method in ("forkserver", "spawn"):
        loader = DataLoader(Data(), batch_size=2, num_workers=1, multiprocessing_context=method)
        print([batch.tolist() for batch in loader])

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=main)
    child.start()
    child.join(90)
    print(child.exitcode)
"""

FAULTY = """
from stoker.compat import DataLoader

class Data:
    def __len__(self):
        return 1
    def __getitem__(self, index):
        return 1 // index  # the user's line

list(DataLoader(Data(), num_workers=1))
"""


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(text)
    return subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=110, check=False)


@pytest.mark.parametrize(
    "text,printed",
    [(CACHED, "[[0, 2], [4, 6]]\n"), (SPAWNED, "[[0, 1], [2, 3]]\n" * 2 + "0\n")],
    ids=["cached functions", "in a spawned process"],
)
def test_what_a_script_defines_reaches_its_workers(tmp_path: Path, text: str, printed: str) -> None:
    ran = run(tmp_path, text)
    assert ran.stdout == printed, ran.stderr


def test_the_trace_of_a_worker_shows_the_users_file_and_line(tmp_path: Path) -> None:
    ran = run(tmp_path, FAULTY)
    assert "ZeroDivisionError" in ran.stderr
    assert f'{tmp_path / "script.py"}", line 8, in __getitem__' in ran.stderr
    assert "return 1 // index  # the user's line" in ran.stderr
