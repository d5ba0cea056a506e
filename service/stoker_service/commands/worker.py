"""The command ``stoker worker``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stoker_service import addresses, arguments, options
from stoker_service.options import WorkerOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from stoker_service.http import Pages


def worker(
    service: Annotated[
        str | None,
        typer.Option(
            "--dispatcher",
            "--service",
            help=f"The dispatcher, as stoker://HOST:PORT; {addresses.SERVICE_VARIABLE} if not given.",
        ),
    ] = None,
    host: arguments.HostOption = options.LOOPBACK,
    port: Annotated[int, typer.Option(help="Port of its Flight server; 0 for a free one.")] = 0,
    advertise: arguments.AdvertiseOption = None,
    num_threads: arguments.ThreadsOption = None,
    memory_bytes: arguments.MemoryOption = arguments.DEFAULT_MEMORY,
    read_bytes: arguments.ReadOption = None,
    allow_code: arguments.AllowCodeOption = False,
    max_processes: arguments.ProcessesOption = None,
    drain_s: arguments.DrainOption = options.DEFAULT_DRAIN_S,
    arena: arguments.ArenaOption = True,
    cache_dir: arguments.CacheDirOption = None,
    cache_bytes: arguments.CacheBytesOption = None,
    cache_ram_bytes: arguments.CacheRamOption = "0",
    backend: arguments.BackendOption = "auto",
    device: arguments.DeviceOption = "cpu",
    placement: arguments.PlacementOption = "auto",
    device_bytes: arguments.DeviceBytesOption = arguments.DEFAULT_DEVICE,
    worker_id: Annotated[str | None, typer.Option(help="Its name, unique in the service; else a random one.")] = None,
    http_host: arguments.HttpHostOption = options.LOOPBACK,
    http_port: arguments.HttpPortOption = None,
    parent_pid: arguments.ParentOption = None,
) -> None:
    """Run a worker: it reads, decodes and sends the batches of the lanes that it is given."""
    from stoker.processes.ending import EXIT_DEVICE_LOST
    from stoker_service import lifecycle

    lifecycle.begin("worker", parent_pid)
    threads = {} if num_threads is None else {"num_threads": num_threads}
    chosen = arguments.made(
        WorkerOptions,
        dispatcher=service if service is not None else str(arguments.service_address(None)),
        host=host,
        port=port,
        advertise=advertise,
        memory_bytes=arguments.size(memory_bytes, "--memory-bytes"),
        read_bytes=arguments.size(read_bytes, "--read-bytes"),
        allow_code=allow_code,
        max_processes=max_processes,
        drain_s=drain_s,
        arena=arena,
        cache_dir=cache_dir,
        cache_bytes=arguments.size(cache_bytes, "--cache-bytes"),
        cache_ram_bytes=arguments.size(cache_ram_bytes, "--cache-ram-bytes"),
        backend=backend,
        device=device,
        placement=placement,
        device_bytes=arguments.size(device_bytes, "--device-bytes"),
        worker_id=worker_id,
        http_host=http_host,
        http_port=http_port,
        **threads,
    )
    with arguments.wrong_usage():
        process = _Process(chosen)
    code = lifecycle.serve(process, process.announce)
    if code == EXIT_DEVICE_LOST:
        lifecycle.leave_within(0.0, code)  # the driver may not let go of what is broken
    raise typer.Exit(code)


class _Process:
    """A worker and its pages."""

    def __init__(self, chosen: WorkerOptions) -> None:
        from stoker.memory.malloc import keep_memory
        from stoker_service.worker.server import WorkerServer

        keep_memory()
        self._options = chosen
        self._server = WorkerServer(chosen)
        self._pages: Pages | None = None

    def start(self) -> None:
        """Listen."""
        from stoker_service import metrics
        from stoker_service.http import Pages

        if self._options.http_port is not None:
            self._pages = Pages(
                self._options.http_host,
                self._options.http_port,
                unready=self._server.unready,
                metrics=metrics.page(self._families),
            )
        self._server.start(preload=True)

    def announce(self) -> None:
        """Say where it can be reached."""
        from stoker_service.lifecycle import say

        say(f"worker {self._server.location} {self._server.worker_id}")
        if self._pages is not None:
            say(f"http {self._pages.url}")

    def wait(self) -> int:
        """Wait for its end."""
        code = self._server.wait()
        self._close_pages()
        return code

    def drain(self) -> None:
        """Let the clients move, then end."""
        self._server.drain()

    def stop(self) -> None:
        """Stop now."""
        self._server.stop()
        self._close_pages()

    def _families(self) -> Iterator[Metric]:
        from stoker_service import gpus, metrics

        made_by = self._options.made_by
        used_bytes = gpus.used_bytes(made_by.device_index) if made_by.is_gpu else None
        return metrics.worker_families(self._server.stats(), used_bytes or 0)

    def _close_pages(self) -> None:
        if self._pages is not None:
            self._pages.close()
