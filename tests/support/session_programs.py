"""Small programs with a session, as processes of their own: they fork, exit and are interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import stoker
from stoker import ops
from stoker.errors import StokerError
from stoker.plan.resume import Position
from stoker.ranks import Rank
from stoker.supply import SupplyOptions
from stoker_service.client.session import Session, open_session
from support import programs

DEADLINE_S = 60.0

_session: Session | None = None  # what a script's globals keep alive until the interpreter goes


def start(name: str, url: str) -> subprocess.Popen[str]:
    """Start a program; it prints one JSON value per line."""
    return subprocess.Popen(
        [sys.executable, "-m", "support.session_programs", name, url],
        env=programs.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _open(url: str) -> Session:
    pipeline = stoker.Pipeline(stoker.tar("/nowhere/shard-*.tar"), [ops.Label("cls")], batch_size=4, lanes=4)
    return open_session(url, pipeline, Rank(0, 1), SupplyOptions(1 << 20, 30.0, True, False, "program"))


def _take(session: Session, count: int) -> Position:
    deal = session._deal
    position = deal.start(0)
    for _ in range(count):
        position = deal.after(position)
        position = deal.taken(position, session.next(position).batch_index)
    return deal.after(position)


def _say(found: object) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def fork(url: str) -> None:
    """Fork with a session open: what does the child hear, and does the parent go on?"""
    session = _open(url)
    position = _take(session, 5)
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        heard = [_heard(lambda: session.next(position)), _heard(lambda: _open(url)), _heard(session.close)]
        os.write(write_end, json.dumps(heard).encode())
        os._exit(0)
    _say(json.loads(os.read(read_end, 100_000)))
    os.wait()
    _say(session.next(position).batch_index)
    session.close()


def _heard(call: Callable[[], object]) -> str:
    try:
        call()
    except StokerError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def forget(url: str) -> None:
    """Leave without closing, batches on their way."""
    global _session  # noqa: PLW0603  # as a script's would be
    _session = _open(url)
    _take(_session, 3)
    _say("leaving")


def wait(url: str) -> None:
    """Wait for a batch that does not come, until Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    session = _open(url)
    try:
        position = _take(session, 2)
        _say("waiting")
        session.next(position)
    except KeyboardInterrupt:
        begun = time.monotonic()
        session.close()
        _say(time.monotonic() - begun)


if __name__ == "__main__":
    {"fork": fork, "forget": forget, "wait": wait}[sys.argv[1]](sys.argv[2])
