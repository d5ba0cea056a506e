"""The command ``stoker dispatcher``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from stoker_service import arguments, options
from stoker_service.addresses import DEFAULT_PORT
from stoker_service.options import DispatcherOptions

if TYPE_CHECKING:
    from stoker_service.http import Pages


def dispatcher(
    host: arguments.HostOption = options.LOOPBACK,
    port: arguments.PortOption = DEFAULT_PORT,
    beat_s: arguments.BeatOption = options.DEFAULT_BEAT_S,
    forget_s: arguments.ForgetOption = options.DEFAULT_FORGET_S,
    until_jobs_end: arguments.UntilJobsEndOption = False,
    http_host: arguments.HttpHostOption = options.LOOPBACK,
    http_port: arguments.HttpPortOption = None,
    parent_pid: arguments.ParentOption = None,
) -> None:
    """Run the dispatcher: it knows workers and jobs, and says which worker makes which lane."""
    from stoker_service import lifecycle

    lifecycle.begin("dispatcher", parent_pid)
    chosen = arguments.made(
        DispatcherOptions,
        host=host,
        port=port,
        beat_s=beat_s,
        forget_s=forget_s,
        until_jobs_end=until_jobs_end,
        http_host=http_host,
        http_port=http_port,
    )
    process = _Process(chosen)
    raise typer.Exit(lifecycle.serve(process, process.announce))


class _Process:
    """A dispatcher and its pages."""

    def __init__(self, chosen: DispatcherOptions) -> None:
        from stoker_service.dispatcher.server import DispatcherServer

        self._options = chosen
        self._server = DispatcherServer(chosen)
        self._pages: Pages | None = None
        self._is_ready = False

    def start(self) -> None:
        """Listen."""
        from stoker_service import metrics
        from stoker_service.http import Pages

        if self._options.http_port is not None:
            self._pages = Pages(
                self._options.http_host,
                self._options.http_port,
                unready=lambda: None if self._is_ready else "the dispatcher is starting",
                metrics=metrics.page(lambda: metrics.dispatcher_families(self._server.snapshot())),
            )
        self._server.start()
        self._is_ready = True

    def announce(self) -> None:
        """Say where it can be reached."""
        from stoker_service.lifecycle import say

        say(f"dispatcher {self._server.address}")
        if self._pages is not None:
            say(f"http {self._pages.url}")

    def wait(self) -> int:
        """Wait for its end."""
        code = self._server.wait()
        self._close_pages()
        return code

    def drain(self) -> None:
        """Stop: streams go on without a dispatcher, and peers find the next one."""
        self.stop()

    def stop(self) -> None:
        """Stop now."""
        self._is_ready = False
        self._server.stop()
        self._close_pages()

    def _close_pages(self) -> None:
        if self._pages is not None:
            self._pages.close()
