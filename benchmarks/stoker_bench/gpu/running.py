"""Runs the parts one after the other, each a process with a time limit, so that none can end or outlast the others."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stoker_bench.gpu import placements

_TESTS = Path(__file__).parents[3] / "tests" / "gpu"
_LEAST_S = 5.0
_SHOWN_LINES = 12
_KEPT_LINES = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """What is run, in ``budget_s`` seconds at most; JSON files and ``gpu.log`` go to ``out``."""

    device: str | None
    out: Path
    budget_s: float = 540.0
    is_short: bool = False
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: its exit code, None at the time limit; what it said on stdout, and on stderr."""

    code: int | None
    output: str
    errors: str = ""

    @property
    def lines(self) -> list[str]:
        """All of it, what it complained of last."""
        return [*self.output.splitlines(), *self.errors.splitlines()]

    @property
    def last_line(self) -> str:
        lines = [line.strip(" │") for line in self.lines if re.search("[A-Za-z]", line)]
        return lines[-1] if lines else "it said nothing"


@dataclass(frozen=True, slots=True)
class Part:
    """``most_s``: its share of the time. ``command`` and ``read``: what is run, and what is made of how it ended."""

    name: str
    most_s: float
    command: Callable[[Asked, float], list[str]]
    read: Callable[[Asked, Ended], dict[str, Any]]


def run(asked: Asked, say: Callable[[str], None]) -> dict[str, Any]:
    """Return what each part found; ``failed`` says why one did not, ``missing`` why it could not be tried."""
    end_s = time.monotonic() + asked.budget_s
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "gpu.log").write_bytes(b"")
    report: dict[str, Any] = {"device": placements.missing_gpu(asked.device) or asked.device}
    for part in PARTS:
        if asked.parts and part.name not in asked.parts:
            continue
        limit_s = min(part.most_s, end_s - time.monotonic())
        if limit_s < _LEAST_S:
            report[part.name] = {"failed": "no time was left"}
            continue
        say(f"== {part.name}, {limit_s:.0f} s at most")
        begun_s = time.monotonic()
        ended = _ended(part.command(asked, limit_s), limit_s, asked.out / "gpu.log")
        if ended.code is None:
            report[part.name] = {"failed": f"it took longer than {limit_s:.0f} s: {ended.last_line}"}
        else:
            report[part.name] = part.read(asked, ended)
        for line in (ended.output or ended.errors).splitlines()[-_SHOWN_LINES:]:
            say(f"   {line}")
        say(f"   {report[part.name].get('failed', 'done')}, {time.monotonic() - begun_s:.0f} s")
    return report


def failed(report: dict[str, Any]) -> list[str]:
    """The parts that failed."""
    return [name for name, found in report.items() if isinstance(found, dict) and "failed" in found]


def _ended(command: Sequence[str], limit_s: float, log: Path) -> Ended:
    """Run a command, and write down what it says; at the limit it is killed with all that it started."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True)
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said = [_whole(written) for written in (out, errors)]
    with log.open("ab") as kept:
        kept.writelines(said)
    return Ended(code, *(text.decode(errors="replace") for text in said))


def _whole(written: IO[bytes]) -> bytes:
    written.seek(0)
    return written.read()


def _measuring(name: str) -> Callable[[Asked, float], list[str]]:
    def command(asked: Asked, limit_s: float) -> list[str]:
        given = [f"--device={asked.device}"] if asked.device else []
        short = ["--short"] if asked.is_short else []
        own = ["-X", "faulthandler", "-m", "stoker_bench.gpu", f"--measure={name}", f"--budget-s={limit_s:.0f}"]
        return [sys.executable, *own, f"--out={asked.out}", *given, *short]

    return command


def _measured(name: str) -> Callable[[Asked, Ended], dict[str, Any]]:
    def read(asked: Asked, ended: Ended) -> dict[str, Any]:
        if ended.code != 0:
            return {"failed": f"exit code {ended.code}: {ended.last_line}"}
        written = asked.out / f"gpu-{name}.json"
        found: dict[str, Any] = json.loads(written.read_text())
        written.unlink()
        return found

    return read


def _test(asked: Asked, limit_s: float) -> list[str]:  # noqa: ARG001  # they look for a GPU themselves
    """Without the conftest above them, which needs what only other tests do; newer packages there may warn."""
    quiet = ["-q", "-rs", "-p", "no:cacheprovider", "-W", "default"]
    return [sys.executable, "-m", "pytest", str(_TESTS), f"--confcutdir={_TESTS}", *quiet]


def _tested(asked: Asked, ended: Ended) -> dict[str, Any]:  # noqa: ARG001
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", ended.last_line)}
    lines = [line for line in ended.output.splitlines() if line.startswith(("SKIPPED", "FAILED", "ERROR"))]
    found: dict[str, Any] = {"counts": counts, "lines": lines[:_KEPT_LINES]}
    if ended.code != 0:
        found["failed"] = f"exit code {ended.code}: {ended.last_line}"
    return found


def _check(asked: Asked, limit_s: float) -> list[str]:  # noqa: ARG001  # its set of pictures is small
    given = [f"--device={asked.device}"] if placements.missing_gpu(asked.device) is None else []
    return [sys.executable, "-m", "stoker_service", "selfcheck", *given]


def _checked(asked: Asked, ended: Ended) -> dict[str, Any]:  # noqa: ARG001
    found: dict[str, Any] = {"lines": ended.output.splitlines()[-_KEPT_LINES:]}
    if ended.code != 0:
        found["failed"] = f"exit code {ended.code}: {ended.last_line}"
    return found


PARTS = (
    Part("machine", 30, _measuring("machine"), _measured("machine")),
    Part("selfcheck", 60, _check, _checked),
    Part("rates", 110, _measuring("rates"), _measured("rates")),
    Part("step", 110, _measuring("step"), _measured("step")),
    Part("service", 90, _measuring("service"), _measured("service")),
    Part("tests", 150, _test, _tested),
)
"""In the order in which they are worth most, should the time not suffice."""
