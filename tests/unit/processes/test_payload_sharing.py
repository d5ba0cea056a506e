"""Processes that open one payload have its large parts once, however often they read."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from stoker.processes.payload import pack

_READER = """
import gc, os, sys
from pathlib import Path
from stoker.processes.payload import unpack

def own_bytes():
    gc.collect()
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))

def say(word):
    print(word, flush=True)
    assert sys.stdin.readline()

how, fd = sys.argv[1], int(sys.argv[2])
empty = own_bytes()
dataset = unpack(fd).load()
if how == "forked" and os.fork():
    os.wait()
    os._exit(0)
names, samples, array = dataset["names"], dataset["samples"], dataset["array"]
total = sum(map(len, names)) + sum(label for _, label in samples) + int(array.sum())
say(total)  # all of them have touched all pages
before = own_bytes()
for _ in range(2):
    assert total == sum(map(len, names)) + sum(label for _, label in samples) + int(array.sum())
    for index in range(0, len(names), 97):
        names[index], samples[index % len(samples)]
say(f"{empty} {before} {own_bytes()}")
"""

NUM_NAMES = 2_000_000


@pytest.mark.timeout(300)
def test_four_processes_share_all_pages_and_do_not_grow() -> None:
    names = [f"/folder/of/the/data/n{i % 1000:08d}/n{i % 1000:08d}_{i}.JPEG" for i in range(NUM_NAMES)]
    samples = [(name, i % 1000) for i, name in enumerate(names[:500_000])]
    payload = pack({"names": names, "samples": samples, "array": np.ones(10_000_000)}, "dataset")
    command = [sys.executable, "-c", textwrap.dedent(_READER)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    readers = [
        subprocess.Popen(
            [*command, how, str(payload.fd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[payload.fd],
            env=environment,
        )
        for how in ("started", "started", "forked", "forked")
    ]
    try:
        assert len({line(reader) for reader in readers}) == 1
        go_on(readers)
        figures = [[int(word) for word in line(reader).split()] for reader in readers]
        go_on(readers)
        assert [reader.wait(60) for reader in readers] == [0, 0, 0, 0]
    finally:
        for reader in readers:
            reader.kill()
            reader.communicate()
    for empty, before, after in figures:
        assert after - before < 0.05 * payload.num_bytes
        # a list has 8 bytes an item of its own
        assert after - empty < 8 * len(names + samples) + 0.1 * payload.num_bytes + (16 << 20)


def line(reader: "subprocess.Popen[str]") -> str:
    assert reader.stdout is not None
    found = reader.stdout.readline()
    assert found, f"the reader ended with {reader.wait(10)}"
    return found


def go_on(readers: "list[subprocess.Popen[str]]") -> None:
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write("go on\n")
        reader.stdin.flush()


def test_writing_makes_only_the_written_pages_ones_own(tmp_path: Path) -> None:
    payload = pack(np.ones(10_000_000), "array")
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import sys
        from pathlib import Path
        from stoker.processes.payload import unpack
        def anonymous():
            lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) * 1024
        opened = unpack(int(sys.argv[1]))
        array, other = opened.load(), opened.load()
        array.sum(), other.sum()
        before = anonymous()
        array[::100_000] = 2
        assert 100 * 4096 <= anonymous() - before < 110 * 4096 + (1 << 20)
        assert (other == 1).all()
        """)
    )
    subprocess.run([sys.executable, str(script), str(payload.fd)], check=True, timeout=60, pass_fds=[payload.fd])
