"""The command ``stoker status``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from stoker_service import arguments

_LEAST_WIDTH = 160


def status(
    service: arguments.ServiceOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the workers and jobs of a service, how fast they are, and how many workers it wants."""
    from rich.console import Console

    from stoker_service import status as shown
    from stoker_service.control import Control

    with Control(arguments.service_address(service)) as control:
        found = control.status()
    if as_json:
        typer.echo(json.dumps(shown.as_json(found)))
        return
    # Never so narrow that columns are cut: a terminal wraps what is too long for it.
    console = Console(
        highlight=False, markup=False, emoji=False, soft_wrap=True, width=max(Console().width, _LEAST_WIDTH)
    )
    for part in shown.as_text(found):
        console.print(part)
