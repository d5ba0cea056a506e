"""TCP proxies in a process of their own, which fail as they are told: ``with run_proxies() as proxies``.

One process holds any number of them. A proxy listens on a port of its own before it knows where to forward to, so that
a server may be told the proxy's address first. Until it has a target, and after its target is gone, it closes what is
accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from support import programs

HOST = "127.0.0.2"

_READ_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Cut:
    """Every open connection is reset; new ones work."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Whatever is forwarded from now on is held back for so long."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Open connections stay open, and nothing is forwarded on them any more; new ones work."""


@dataclass(frozen=True, slots=True)
class BlackHole:
    """For so long nothing is forwarded, on connections old and new; none is closed. Then all goes on."""

    for_s: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """Every open connection is reset, and new ones too, for so long."""

    for_s: float


Fault = Cut | Delay | Drop | BlackHole | Refuse
_FAULTS: dict[str, type[Fault]] = {kind.__name__: kind for kind in (Cut, Delay, Drop, BlackHole, Refuse)}


# -- in the test's process ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proxy:
    """One listening port, of 127.0.0.2: a server behind it may have the same port of 127.0.0.1."""

    port: int
    proxies: Proxies = field(repr=False)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def forward_to(self, port: int) -> None:
        """New connections go to this port of loopback."""
        self.proxies.ask(do="target", port=self.port, target=port)

    def fail(self, fault: Fault) -> None:
        """Begin to fail in this way; returns once it does."""
        self.proxies.ask(do="fail", port=self.port, fault=type(fault).__name__, arguments=asdict(fault))

    def heal(self) -> None:
        """End every fault that is under way; connections that were dropped are reset."""
        self.proxies.ask(do="heal", port=self.port)

    def num_connections(self) -> int:
        """Connections that are open now."""
        return int(self.proxies.ask(do="count", port=self.port))


@dataclass(frozen=True, slots=True)
class Proxies:
    """The process that runs them. For one thread at a time."""

    process: subprocess.Popen[str]

    def listen(self, port: int = 0) -> Proxy:
        """A new proxy on this port, or on one that the system chooses. Raises OSError if it is taken."""
        if not (taken := self.ask(do="listen", port=port)):
            raise OSError(f"port {port} of {HOST} is taken")
        return Proxy(taken, self)

    def ask(self, **order: Any) -> Any:
        """Give an order and wait for its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process of the proxies is gone, exit status {self.process.wait(10)}")
        return json.loads(answer)


@contextlib.contextmanager
def run_proxies() -> Iterator[Proxies]:
    """A process for proxies, until the end of the block. It ends by itself when its standard input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "support.proxy"],
        env=programs.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Proxies(process)
        finally:
            process.kill()


# -- in the proxies' process -------------------------------------------------------------------------------------------


class _Connection:
    """A client's connection and ours to the target."""

    def __init__(self, port: _Port, down: asyncio.StreamWriter) -> None:
        self.is_dropped = False
        self._port = port
        self._writers = [down]

    async def run(self, reader: asyncio.StreamReader, target: int) -> None:
        """Forward both ways until both are at their end, or the connection is cut."""
        down = self._writers[0]
        try:
            await self._port.is_open.wait()
            up_reader, up = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            self.cut()
            return
        self._writers.append(up)
        if down.transport.is_closing():
            self.cut()
            return
        try:
            await asyncio.gather(self._pump(reader, up), self._pump(up_reader, down))
        except OSError:
            pass  # one side is gone; so must the other be
        finally:
            self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while received := await reader.read(_READ_BYTES):
            if self._port.delay_s:
                await asyncio.sleep(self._port.delay_s)
            await self._port.is_open.wait()
            if not self.is_dropped:
                writer.write(received)
                await writer.drain()
        await self._port.is_open.wait()
        if not self.is_dropped:
            writer.write_eof()


class _Port:
    """One proxy."""

    def __init__(self) -> None:
        self.target: int | None = None
        self.delay_s = 0.0
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.connections: set[_Connection] = set()
        self._refuses = False
        self._timers: list[asyncio.TimerHandle] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.target is None or self._refuses:
            writer.transport.abort()
            return
        connection = _Connection(self, writer)
        self.connections.add(connection)
        try:
            await connection.run(reader, self.target)
        finally:
            self.connections.discard(connection)

    def fail(self, fault: Fault) -> None:
        match fault:
            case Cut():
                self.cut_all()
            case Delay(delay_s):
                self.delay_s = delay_s
            case Drop():
                for connection in self.connections:
                    connection.is_dropped = True
            case BlackHole(for_s):
                self.is_open.clear()
                self._later(for_s, self.is_open.set)
            case Refuse(for_s):
                self._refuses = True
                self.cut_all()
                self._later(for_s, self._accept_again)

    def heal(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self.delay_s = 0.0
        self._refuses = False
        self.is_open.set()
        for connection in self.connections:
            if connection.is_dropped:
                connection.cut()

    def cut_all(self) -> None:
        for connection in self.connections:
            connection.cut()

    def _accept_again(self) -> None:
        self._refuses = False

    def _later(self, for_s: float, act: Any) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(for_s, act))


async def _serve() -> None:
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    ports: dict[int, _Port] = {}
    servers: list[asyncio.Server] = []
    while line := await orders.readline():
        order = json.loads(line)
        answer: Any = None
        if order["do"] == "listen":
            port = _Port()
            with contextlib.suppress(OSError):
                servers.append(await asyncio.start_server(port.accept, HOST, order["port"]))
                answer = servers[-1].sockets[0].getsockname()[1]
                ports[answer] = port
        else:
            answer = _obey(ports[order["port"]], order)
        programs.say(answer)


def _obey(port: _Port, order: dict[str, Any]) -> Any:
    match order["do"]:
        case "target":
            port.target = order["target"]
        case "fail":
            port.fail(_FAULTS[order["fault"]](**order["arguments"]))
        case "heal":
            port.heal()
        case "count":
            return len(port.connections)
        case unknown:
            raise ValueError(unknown)
    return None


if __name__ == "__main__":
    asyncio.run(_serve())
