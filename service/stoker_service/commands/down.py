"""The command ``stoker down``."""

from __future__ import annotations

from typing import Annotated

import typer

from stoker_service import arguments


def down(
    service: arguments.ServiceOption = None,
    when_jobs_end: Annotated[bool, typer.Option("--when-jobs-end", help="Wait until the last job has ended.")] = False,
) -> None:
    """End a service, its dispatcher and all its workers, wherever they run."""
    from stoker_service.control import Control

    address = arguments.service_address(service)
    with Control(address) as control:
        control.stop(when_jobs_end=when_jobs_end)
    typer.echo(f"{address} ends {'when its last job has ended' if when_jobs_end else 'now'}")
