"""The command ``stoker drain``."""

from __future__ import annotations

from typing import Annotated

import typer

from stoker_service import arguments


def drain(
    worker: Annotated[str, typer.Argument(help="Its id, or the first letters of it, as in stoker status.")],
    service: arguments.ServiceOption = None,
) -> None:
    """Have a worker hand its lanes to the others and end; no batch is lost."""
    from stoker_service.control import Control

    with Control(arguments.service_address(service)) as control:
        worker_id = control.drain(worker)
    typer.echo(f"{worker_id} drains: its lanes move to the others, then it ends")
