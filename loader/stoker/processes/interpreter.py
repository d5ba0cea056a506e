"""The command line of a fresh interpreter that runs one of our modules."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
from typing import Final

from stoker.errors import WorkerError

# Only what is built into the interpreter may be imported before the path is set: with `-c`, the current folder stands
# first in it, and may hold a `pickle.py` of the user's.
_BOOT: Final = """\
import marshal, posix, sys
boot = int(sys.argv[1])
sys.path[:], module, argument = marshal.loads(posix.pread(boot, posix.fstat(boot).st_size, 0))
posix.close(boot)
import importlib
importlib.import_module(module).main(argument)
"""


def boot_file(path: list[str], module: str, argument: bytes) -> int:
    """A nameless file from which :func:`command` has ``module.main(argument)`` called, with this import path."""
    fd = os.memfd_create("stoker-boot", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(marshal.dumps((path, module, argument)))
    return fd


def command(boot_fd: int) -> list[str]:
    """The command line; the descriptor must be inherited. The flags (``-P``, ``-I``, ``-X`` ...) are this process's.

    Raises WorkerError where this process's interpreter is not known.
    """
    if not sys.executable:
        raise WorkerError(
            "this program embeds Python, so there is no interpreter to start workers with: sys.executable is empty; "
            'set it, or use the start method "fork"'
        )
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", _BOOT, str(boot_fd)]
