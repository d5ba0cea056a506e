"""What is imported late can be imported before."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support import pictures

PROGRAM = """
import sys

from stoker import ops
from stoker.backends.cpu.preload import preload
from support.ops import image

LARGE = ("torch", "cv2", "PIL", "simplejpeg")
if sys.argv[1:]:
    sys.modules.update(dict.fromkeys(sys.argv[1:]))  # importing one of these fails
before = set(sys.modules)
preload()
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before} & set(LARGE)))
if not sys.argv[1:]:
    before = set(sys.modules)
    for file in sys.stdin.read().split():
        image([ops.DecodeImage("image"), ops.Resize("image", 24)], bytes.fromhex(file))
    late = set(sys.modules) - before
    print(*sorted(name for name in late if name.partition(".")[0] in LARGE))
"""


def printed(*missing: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, *missing]
    path = {"PYTHONPATH": ":".join(sys.path)}
    files = " ".join(file.hex() for file in (pictures.jpeg(), pictures.png()))
    found = subprocess.run(command, input=files, capture_output=True, text=True, timeout=100, check=False, env=path)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def test_after_it_decoding_and_resizing_import_nothing_large() -> None:
    pytest.importorskip("torch")
    large, late = printed()
    assert set(large.split()) >= {"torch", "cv2", "simplejpeg"}
    assert late == ""


def test_what_is_not_installed_is_no_error() -> None:
    assert printed("torch", "cv2", "simplejpeg", "PIL.Image") is not None
