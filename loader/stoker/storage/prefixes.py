"""Which requests are counted together: those below one folder, or one further up where there are many folders."""

from __future__ import annotations

from functools import lru_cache

from stoker.storage.urls import WEB_SCHEMES, scheme_of

_ROOT_PARTS = 3  # "s3:", "", "bucket"


@lru_cache(maxsize=4096)
def folder_of(url: str) -> str:
    """The URL of the folder an object lies in, fit to be shown: no query, no user part."""
    if scheme_of(url) in WEB_SCHEMES:
        head, _, rest = url.partition("?")[0].partition("#")[0].partition("://")
        host, slash, path = rest.partition("/")
        url = f"{head}://{host.rpartition('@')[2]}{slash}{path}"
    folder, _, name = url.rpartition("/")
    return url if folder.endswith("/") or (not folder and name) else folder  # "s3://bucket" is its own


def cut_to(folder: str, depth: int) -> str:
    """The folder that lies ``depth`` folders below the bucket on the way to this one; this one if it lies higher."""
    return "/".join(folder.split("/", _ROOT_PARTS + depth)[: _ROOT_PARTS + depth])


def depth_of(folder: str) -> int:
    """How many folders lie between the bucket and this one, itself counted; 0 for the bucket."""
    return max(0, folder.count("/") - _ROOT_PARTS + 1)
