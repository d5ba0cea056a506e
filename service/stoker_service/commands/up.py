"""The command ``stoker up``."""

from __future__ import annotations

from typing import Annotated

import typer

from stoker_service import arguments, options
from stoker_service.addresses import DEFAULT_PORT
from stoker_service.options import UpOptions


def up(
    num_workers: Annotated[int, typer.Option("--workers", "--num-workers", help="Workers to keep alive.")] = 1,
    host: arguments.HostOption = options.LOOPBACK,
    port: arguments.PortOption = DEFAULT_PORT,
    beat_s: arguments.BeatOption = options.DEFAULT_BEAT_S,
    forget_s: arguments.ForgetOption = options.DEFAULT_FORGET_S,
    until_jobs_end: arguments.UntilJobsEndOption = False,
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
    engine: Annotated[
        str, typer.Option(help="What runs the workers: processes of this machine, or ray, an existing cluster.")
    ] = "processes",
    http_host: arguments.HttpHostOption = options.LOOPBACK,
    http_port: Annotated[
        int | None,
        typer.Option(
            help="Port of the dispatcher's /healthz, /readyz and /metrics; the workers' follow it. 0: free ones."
        ),
    ] = None,
) -> None:
    """Run a whole service on this machine: a dispatcher and its workers, which are started again when they die."""
    from stoker_service import lifecycle

    lifecycle.begin("up")
    chosen = arguments.made(
        UpOptions,
        num_workers=num_workers,
        host=host,
        port=port,
        beat_s=beat_s,
        forget_s=forget_s,
        until_jobs_end=until_jobs_end,
        advertise=advertise,
        num_threads=num_threads,
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
        engine=engine,
        http_host=http_host,
        http_port=http_port,
    )
    raise typer.Exit(_run(chosen))


def _run(chosen: UpOptions) -> int:
    from stoker_service import lifecycle

    if chosen.engine == "ray":
        from stoker_service.engines import ray

        return ray.run(chosen, lifecycle.say)
    from stoker_service import backend
    from stoker_service.up import Supervisor

    with arguments.wrong_usage():
        backend.check(chosen.made_by)  # once, instead of every worker
    return Supervisor(chosen, lifecycle.say).run()
