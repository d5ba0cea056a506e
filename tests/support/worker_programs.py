"""Programs of worker processes that tests launch: ``"support.worker_programs:echo"``."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from stoker.processes.channel import Channel, ChannelClosedError


def echo(channel: Channel, inherited: Any) -> None:
    """Send everything back, descriptors too, until the trainer hangs up."""
    try:
        while True:
            message = channel.receive(None)
            assert message is not None
            channel.send([message.body], message.fds)
            for fd in message.fds:
                os.close(fd)
    except ChannelClosedError:
        return


def surroundings(channel: Channel, inherited: Any) -> None:
    """Tell what a worker finds about itself."""
    found = {
        "argv": sys.argv,
        "path": sys.path,
        "folder": str(Path("/proc/self/cwd").readlink()),
        "environment": dict(os.environ),
        "main": sorted(vars(sys.modules["__main__"])),
        "thread": threading.current_thread().name,
        "comm": Path("/proc/self/comm").read_text(encoding="ascii").strip(),
        "interrupt_is_ignored": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "termination_is_default": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "num_fds": len(list(Path("/proc/self/fd").iterdir())),
        "modules": sorted(sys.modules),
        "inherited": repr(inherited),
        "dont_write_bytecode": sys.flags.dont_write_bytecode,
    }
    channel.send([json.dumps(found).encode()])
    sys.stdout.write("a worker's line\n")
    echo(channel, None)


def exit_with_3(channel: Channel, inherited: Any) -> None:
    """Leave with a code."""
    sys.exit(3)


def fail(channel: Channel, inherited: Any) -> None:
    """Let an exception end it."""
    raise LookupError("the program's own error")


def busy(channel: Channel, inherited: Any) -> None:
    """Never look at the channel again."""
    channel.send([b"busy"])
    while True:
        pass


def busy_in_c(channel: Channel, inherited: Any) -> None:
    """Stay in native code that keeps the GIL."""
    silent, _writer = os.pipe()
    channel.send([b"busy"])
    ctypes.PyDLL(None).read(silent, ctypes.create_string_buffer(1), 1)


def with_grandchild(channel: Channel, inherited: Any) -> None:
    """Start a process, tell its pid, and hang."""
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    channel.send([str(child.pid).encode()])
    while True:
        signal.pause()


def deaf(channel: Channel, inherited: Any) -> None:
    """Hold on after the trainer has hung up, for as long as it is let."""
    channel.send([b"deaf"])
    while True:
        threading.Event().wait()
