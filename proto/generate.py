"""Generates Python code from the .proto files, or checks that what is committed is what they give.

Run by ``make proto`` and ``make generated``. Needs grpcio-tools 1.66.2 exactly (the dev extra brings it): output of
newer ones refuses older runtimes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import metadata
from pathlib import Path

GENERATOR = "1.66.2"
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")


def generate(source_root: Path, target: Path) -> None:
    """Write the code of every .proto file below ``source_root`` at the same place below ``target``."""
    protos = sorted(source_root.rglob("*.proto"))
    if not protos:
        return
    found = metadata.version("grpcio-tools")
    if found != GENERATOR:
        raise SystemExit(f"grpcio-tools {GENERATOR} is needed, {found} is installed")
    from grpc_tools import protoc

    options = [f"--{kind}={target}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    failed = protoc.main(["protoc", f"--proto_path={source_root}", *options, *map(str, protos)])
    if failed:
        raise SystemExit(f"protoc failed with code {failed}")


def stale(source_root: Path) -> list[str]:
    """Name the generated files that are missing, differ, or have no .proto file any more."""
    with tempfile.TemporaryDirectory() as folder:
        generate(source_root, Path(folder))
        fresh, committed = _generated(Path(folder)), _generated(source_root)
    return sorted(name for name in fresh.keys() | committed.keys() if fresh.get(name) != committed.get(name))


def _generated(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*_pb2*") if path.name.endswith(SUFFIXES))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def main() -> int:
    """Generate, or with ``--check`` list what is stale and return 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the committed code is stale")
    parser.add_argument("--root", type=Path, default=Path(__file__).parent, help="folder with the .proto files")
    arguments = parser.parse_args()
    if not arguments.check:
        generate(arguments.root, arguments.root)
        return 0
    outdated = stale(arguments.root)
    for name in outdated:
        sys.stderr.write(f"stale: {name}; run `make proto` and commit the result\n")
    sys.stdout.write(f"{len(list(arguments.root.rglob('*.proto')))} .proto files, {len(outdated)} stale files\n")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
