"""Fixtures for every test: object stores that really run."""

from __future__ import annotations

import importlib.util

from hypothesis import settings

settings.register_profile("stoker", deadline=None)  # these machines are shared: a slow example is no failure
settings.load_profile("stoker")

pytest_plugins = (
    ["support.backends", "support.servers", "support.chaos"] if importlib.util.find_spec("support.servers") else []
)
