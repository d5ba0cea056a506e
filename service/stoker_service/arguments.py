"""What several commands understand by the URLs and options they are given."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from stoker.errors import MissingDependencyError, SpecError
from stoker_service import addresses
from stoker_service.addresses import SERVICE_VARIABLE, Address
from stoker_service.console import complain

if TYPE_CHECKING:
    from stoker.formats.keys import KeyRule
    from stoker.formats.source import Source

StorageOptions = Annotated[
    list[str] | None,
    typer.Option("--storage-option", "-o", help="For the store, as name=value; may be given several times."),
]

ServiceOption = Annotated[
    str | None,
    typer.Option("--service", help=f"The dispatcher, as stoker://HOST:PORT; {SERVICE_VARIABLE} if not given."),
]
HostOption = Annotated[str, typer.Option(help="Where it listens; 0.0.0.0 for other machines too.")]
PortOption = Annotated[int, typer.Option(help="Port of the dispatcher; 0 for a free one.")]
BeatOption = Annotated[float, typer.Option(help="Seconds between beats; a peer that misses three is dead.")]
ForgetOption = Annotated[
    float, typer.Option(help="Seconds until a dead worker, or a job without clients, is forgotten.")
]
UntilJobsEndOption = Annotated[
    bool, typer.Option("--until-jobs-end/--no-until-jobs-end", help="End when the last job has ended.")
]
AdvertiseOption = Annotated[
    str | None, typer.Option(help="The host under which clients reach a worker, if it is not where it listens.")
]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", "--num-threads", help="Decoding threads of a worker; its share of the cores.")
]
MemoryOption = Annotated[
    str, typer.Option(help="Room for batches made ahead in one worker, such as 512MiB; the next ones are always made.")
]
ReadOption = Annotated[str | None, typer.Option(help="Room for chunks read ahead in one worker, such as 512MiB.")]
AllowCodeOption = Annotated[
    bool, typer.Option("--allow-code/--no-allow-code", help="Run users' functions and datasets that clients send.")
]
ProcessesOption = Annotated[
    int | None,
    typer.Option(
        "--max-processes", help="Processes for torch datasets in one worker; as many as its threads if not given."
    ),
]
DrainOption = Annotated[float, typer.Option(help="Seconds that a leaving worker gives its clients to move.")]
ArenaOption = Annotated[
    bool, typer.Option("--arena/--no-arena", help="Share batches with clients on this machine through memory.")
]
CacheDirOption = Annotated[
    str | None,
    typer.Option("--cache-dir", help="Folder of a local disk where a worker keeps what it has read, for all workers."),
]
CacheBytesOption = Annotated[
    str | None, typer.Option(help="Room in that folder, such as 500GiB; half of what is free if not given.")
]
CacheRamOption = Annotated[
    str, typer.Option(help="Room in one worker's memory for what it has read, for all workers, such as 4GiB.")
]
BackendOption = Annotated[
    str, typer.Option(help="What makes samples: cpu, dali, or auto: dali where a GPU is given, else cpu.")
]
DeviceOption = Annotated[
    str,
    typer.Option(help="Where dali may work: cpu, or a GPU such as cuda:0. With `stoker up`, cuda: all GPUs in turn."),
]
PlacementOption = Annotated[
    str, typer.Option(help="Where dali does ops: auto, cpu, mixed, gpu, or for each as Op=place,Op=place.")
]
DeviceBytesOption = Annotated[
    str, typer.Option(help="GPU memory that one worker's pipelines may hold together, such as 2GiB.")
]
HttpHostOption = Annotated[str, typer.Option(help="Where /healthz, /readyz and /metrics are served.")]
HttpPortOption = Annotated[
    int | None, typer.Option(help="Port of /healthz, /readyz and /metrics, 0 for a free one; none if not given.")
]
ParentOption = Annotated[
    int | None, typer.Option(hidden=True, help="End with the process of this id, however it ends.")
]

Options = TypeVar("Options")

DEFAULT_MEMORY = "1GiB"  # options.DEFAULT_MEMORY_BYTES, as people say it
DEFAULT_DEVICE = "2GiB"  # options.DEFAULT_DEVICE_BYTES

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def service_address(given: str | None) -> Address:
    """Return the service that is meant: the one given, else the environment's, else this machine's."""
    _need_grpc()
    with wrong_usage():
        return addresses.from_environment(given)


def made(kind: type[Options], **named: Any) -> Options:
    """Make an options object of what the command line says; one that cannot be is wrong usage, in one line."""
    _need_grpc()
    with wrong_usage():
        return kind(**named)


@contextlib.contextmanager
def wrong_usage() -> Iterator[None]:
    """Turn a SpecError into one line and exit code 2."""
    try:
        yield
    except SpecError as error:
        complain(str(error))
        raise typer.Exit(2) from error


def as_arguments(options: Any) -> list[str]:
    """Return the command-line arguments that give these options again; for those whose names are their fields'."""
    given: list[str] = []
    for entry in dataclasses.fields(options):
        name, value = f"--{entry.name.replace('_', '-')}", getattr(options, entry.name)
        if isinstance(value, bool):
            given.append(name if value else name.replace("--", "--no-", 1))
        elif value is not None:
            given.append(f"{name}={value}")
    return given


def size(text: str | None, option: str) -> int | None:
    """Read a number of bytes: ``1048576``, ``512MiB``, ``1.5GiB``."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if found is None or found[2].upper() not in _UNITS:
        raise typer.BadParameter(f"{text!r}: expected bytes, such as 1073741824, 512MiB or 1GiB", param_hint=option)
    return int(float(found[1]) * _UNITS[found[2].upper()])


def storage_options(pairs: Sequence[str] | None) -> dict[str, str] | None:
    """Turn ``name=value`` texts into options; None if there are none."""
    for pair in pairs or ():
        if "=" not in pair:
            raise typer.BadParameter(f"{pair!r}: expected name=value", param_hint="--storage-option")
    return dict(pair.split("=", 1) for pair in pairs) if pairs else None


def source(
    urls: Sequence[str],
    options: Mapping[str, str] | None = None,
    *,
    keys: str = "first-dot",
    manifest: str | None = None,
) -> Source:
    """Return tars or Parquet files if the URLs name some, else the one folder or listing of pictures."""
    from stoker.formats.source import Files, Parquet, Tar

    given = dict(options) if options else None
    if urls and all(_names_parquet(url) for url in urls):
        return Parquet(tuple(urls), storage_options=given, manifest=manifest)
    if len(urls) == 1 and not _names_tars(urls[0]):
        return Files(urls[0], storage_options=given, manifest=manifest)
    # Tar itself says what is wrong with another word for keys.
    return Tar(tuple(urls), keys=cast("KeyRule", keys), storage_options=given, manifest=manifest)


def _need_grpc() -> None:
    if importlib.util.find_spec("grpc") is None:
        raise MissingDependencyError("the service needs grpcio: pip install 'stoker[service]'")


def _names_parquet(url: str) -> bool:
    return url.partition("?")[0].rstrip("}").endswith(".parquet")


def _names_tars(url: str) -> bool:
    return ".tar" in url or url.endswith(".tgz")
