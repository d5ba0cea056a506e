"""The real Prometheus of Debian's packages: the one in PATH, else one unpacked under ``build/``."""

from __future__ import annotations

import functools
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FETCH_S = 120.0
READY_S = 60.0
SCRAPE_S = 0.2

_BUILD = Path(__file__).parents[2] / "build"
_FOLDER = _BUILD / "prometheus"
_READY = b"Server is ready to receive web requests"
_LISTENING = re.compile(rb'msg="Listening on" address=(\S+)')


@dataclass(frozen=True, slots=True)
class Tools:
    """Where the programs lie."""

    prometheus: Path
    promtool: Path


@dataclass(frozen=True, slots=True)
class Missing:
    """Why there are none here."""

    reason: str


@functools.cache
def find() -> Tools | Missing:
    """Return Prometheus's programs, fetching them once if need be."""
    installed = shutil.which("prometheus"), shutil.which("promtool")
    if installed[0] and installed[1]:
        return Tools(Path(installed[0]), Path(installed[1]))
    tools = Tools(_FOLDER / "usr/bin/prometheus", _FOLDER / "usr/bin/promtool")
    if tools.prometheus.exists():
        return tools
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            return Missing(f"no prometheus in PATH, and no {program} to fetch Debian's with")
    try:
        _fetch()
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", None) or b""
        return Missing(f"Debian's prometheus could not be fetched: {error} {said.decode(errors='replace')[-200:]}")
    return tools


def check_metrics(tools: Tools, text: str) -> str:
    """Return what ``promtool check metrics`` finds wrong with a page; nothing if all is well."""
    done = subprocess.run(
        [tools.promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout + done.stderr + (f"exit code {done.returncode}" if done.returncode else "")


class Server:
    """A Prometheus that runs; to be made by :func:`scraping`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Return the series that an instant query gives now, as the HTTP API gives them."""
        return list(self._get("/api/v1/query", query=query)["result"])

    def targets(self) -> list[dict[str, Any]]:
        """Return the targets with their health and the last scrape's error."""
        return list(self._get("/api/v1/targets")["activeTargets"])

    def _get(self, path: str, **parameters: str) -> Any:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
            return json.load(answer)["data"]


@contextmanager
def scraping(tools: Tools, folder: Path, targets: dict[str, Sequence[str]]) -> Iterator[Server]:
    """Run a Prometheus that scrapes these ``host:port`` targets, by job name, every 0.2 s."""
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [{"job_name": name, "static_configs": [{"targets": list(hosts)}]} for name, hosts in targets.items()]
    interval = f"{round(SCRAPE_S * 1000)}ms"
    # JSON is YAML.
    settings = {"global": {"scrape_interval": interval, "scrape_timeout": interval}, "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(json.dumps(settings), encoding="utf-8")
    command = [
        str(tools.prometheus),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'series'}",
        "--web.listen-address=127.0.0.1:0",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            yield Server(f"http://{_address(process)}")
        finally:
            process.kill()


def _address(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None
    said, until_s = b"", time.monotonic() + READY_S
    while (found := _LISTENING.search(said)) is None or _READY not in said:
        ready, _, _ = select.select([process.stderr], [], [], max(0.0, until_s - time.monotonic()))
        more = os.read(process.stderr.fileno(), 65536) if ready else b""
        assert more, f"prometheus did not start; it said:\n{said.decode(errors='replace')}"
        said += more
    return found[1].decode()


def _fetch() -> None:
    _BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_BUILD) as folder:
        # Beside the system's lists and keys nothing is touched, and the fetching user of apt may not write here.
        subprocess.run(
            ["apt-get", "download", "-o", "APT::Sandbox::User=root", "prometheus"],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=FETCH_S,
        )
        (package,) = Path(folder).glob("prometheus_*.deb")
        unpacked = Path(folder) / "unpacked"
        subprocess.run(["dpkg-deb", "-x", package, unpacked], check=True, capture_output=True, timeout=FETCH_S)
        try:
            unpacked.rename(_FOLDER)
        except OSError:  # another test's process was faster
            if not _FOLDER.exists():
                raise
