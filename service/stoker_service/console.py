"""Says something to the person at the terminal."""

from __future__ import annotations

from rich.console import Console


def complain(text: str) -> None:
    """Show one line on stderr."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print("[bold red]stoker:[/]", end=" ")
    console.print(" ".join(text.split()), markup=False)
