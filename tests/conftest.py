"""Fixtures for every test: object stores that really run."""

from __future__ import annotations

import importlib.util

pytest_plugins = ["support.servers"] if importlib.util.find_spec("support.servers") else []
