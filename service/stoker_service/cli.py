"""The command ``stoker``."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import Annotated

import typer

from stoker.errors import StokerError
from stoker_service.console import complain

PLUGIN_GROUP = "stoker.commands"
DEBUG_VARIABLE = "STOKER_DEBUG"


@dataclass(slots=True)
class Session:
    """What one run of the command has been told so far."""

    debug: bool = False


def main() -> None:
    """Run the command line and exit: 0, 1 for an error of Stoker's, 2 for wrong usage, 130 after Ctrl-C."""
    session = Session(debug=bool(os.environ.get(DEBUG_VARIABLE)))
    try:
        build_app(session)(prog_name="stoker")
    except StokerError as error:
        if session.debug:
            raise
        complain(f"{error}")
        sys.exit(1)


def build_app(session: Session) -> typer.Typer:
    """Return the application with the plug-in commands that are installed."""
    from stoker_service.commands.convert import convert
    from stoker_service.commands.dispatcher import dispatcher
    from stoker_service.commands.down import down
    from stoker_service.commands.drain import drain
    from stoker_service.commands.index import index
    from stoker_service.commands.selfcheck import selfcheck
    from stoker_service.commands.status import status
    from stoker_service.commands.up import up
    from stoker_service.commands.worker import worker

    app = typer.Typer(name="stoker", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)

    @app.callback()
    def options(
        debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
        _version: Annotated[
            bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
        ] = False,
    ) -> None:
        """Stoker: an input pipeline for deep learning. Shards in, ready batches out."""
        session.debug = session.debug or debug

    for command in (index, convert, up, dispatcher, worker, status, drain, down, selfcheck):
        app.command()(command)
    _add_plugins(app)
    return app


def _add_plugins(app: typer.Typer) -> None:
    for point in sorted(metadata.entry_points(group=PLUGIN_GROUP), key=lambda point: point.name):
        try:
            command = point.load()
        except ImportError as error:
            complain(f"the command {point.name!r} ({point.value}) is left out: {error}")
        else:
            app.command(point.name)(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stoker {metadata.version('stoker')}")
        raise typer.Exit
