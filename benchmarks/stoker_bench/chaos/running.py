"""Runs the server: in a thread of its own, or until a signal ends the process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from stoker.storage.chaos.profile import parse
from stoker_bench.chaos.answers import Origin
from stoker_bench.chaos.counts import Counts
from stoker_bench.chaos.folder import FolderOrigin
from stoker_bench.chaos.server import Chaos
from stoker_bench.chaos.upstream import UpstreamOrigin

START_S = 30.0
IDLE_S = 30.0


@dataclass(frozen=True, slots=True)
class ChaosServer:
    """A server that runs in a thread of this process; its methods are for any thread."""

    endpoint: str
    chaos: Chaos

    def counts(self) -> Counts:
        """What was counted, once nothing is in flight. Raises TimeoutError if that does not come to be."""
        if not self.chaos.counts.wait_until_idle(IDLE_S):
            raise TimeoutError(f"requests are in flight for more than {IDLE_S:g} s; does the profile stall?")
        return self.chaos.counts

    def behave(self, profile: str) -> None:
        """Behave like this from now on, a profile as text; the next request is number 0."""
        self.chaos.behave(parse(profile))

    def refuse(self, *access_keys: str) -> None:
        """Turn away these access keys from now on, and no others."""
        self.chaos.refused = frozenset(access_keys)


def origin_of(source: str | Path) -> Origin:
    """A folder, or the server at a web address."""
    return (
        UpstreamOrigin(str(source)) if str(source).startswith(("http://", "https://")) else FolderOrigin(Path(source))
    )


@contextlib.contextmanager
def run_chaos(source: str | Path, profile: str = "none") -> Iterator[ChaosServer]:
    """A server on loopback, on a free port, until the end of the block; what stalls then is broken off."""
    chaos = Chaos(origin_of(source), parse(profile))
    started: Future[tuple[str, Callable[[], None]]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_in_thread(chaos, started)), name="stoker-chaos")
    thread.start()
    try:
        endpoint, stop = started.result(START_S)
        try:
            yield ChaosServer(endpoint, chaos)
        finally:
            stop()
    finally:
        thread.join()


async def run_until_signal(chaos: Chaos, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``say`` is told the address."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with _listening(chaos, host, port) as endpoint:
        say(endpoint)
        await stopped.wait()


async def _in_thread(chaos: Chaos, started: Future[tuple[str, Callable[[], None]]]) -> None:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    try:
        async with _listening(chaos, "127.0.0.1", 0) as endpoint:
            started.set_result((endpoint, lambda: _end(loop, stopped)))
            await stopped.wait()
    except BaseException as error:
        if not started.done():
            started.set_exception(error)
            return
        raise


def _end(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    loop.call_soon_threadsafe(stopped.set)


@contextlib.asynccontextmanager
async def _listening(chaos: Chaos, host: str, port: int) -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(chaos.respond, handler_cancellation=True), shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=1024).start()
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        await chaos.close()
