"""``python -m stoker_bench.chaos FOLDER --profile gcs``: the server as a process, which prints its address."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from stoker.errors import SpecError
from stoker.storage.chaos.profile import PROFILES, parse
from stoker_bench.chaos.running import origin_of, run_until_signal
from stoker_bench.chaos.server import Chaos


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m stoker_bench.chaos", description=__doc__)
    parser.add_argument(
        "source", help="a folder to serve, or the http:// address of an S3 or GCS server to stand before"
    )
    parser.add_argument("--profile", default="none", help=f"{', '.join(PROFILES)}; with changes: gcs,seed=3,rate=50")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    asked = parser.parse_args(arguments)
    try:
        chaos = Chaos(origin_of(asked.source), parse(asked.profile))
    except (SpecError, OSError) as error:
        parser.error(str(error))
    asyncio.run(run_until_signal(chaos, asked.host, asked.port, lambda endpoint: print(endpoint, flush=True)))


if __name__ == "__main__":
    main()
