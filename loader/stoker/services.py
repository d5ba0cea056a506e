"""The functions that open what an address of a service names."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from stoker.errors import MissingDependencyError, SpecError


def opener(url: str, group: str) -> Any:
    """Load the entry point of ``group`` that is named after the URL's scheme.

    Raises SpecError if there is none, MissingDependencyError if it needs packages that are not installed.
    """
    scheme, colon, _ = url.partition("://")
    points = {point.name: point for point in metadata.entry_points(group=group)}
    if not colon or scheme not in points:
        raise SpecError(
            f"service={url!r}: expected an address such as stoker://host:4300; schemes: {', '.join(points)}"
        )
    try:
        return points[scheme].load()
    except ImportError as error:
        raise MissingDependencyError(
            f"service= needs more packages ({error}): pip install 'stoker[service]'"
        ) from error
