"""nginx as a bucket that is only read."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_START_S = 10.0
_CONFIG = """
daemon off; worker_processes 1; pid {scratch}/nginx.pid; error_log {scratch}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; etag on;
  client_body_temp_path {scratch}/body; proxy_temp_path {scratch}/proxy; fastcgi_temp_path {scratch}/fastcgi;
  uwsgi_temp_path {scratch}/uwsgi; scgi_temp_path {scratch}/scgi;
  server {{ listen 127.0.0.1:{port}; location /bench/ {{ alias {folder}/; }} }}
}}
"""


@contextmanager
def run_nginx(binary: str, folder: Path, scratch: Path) -> Iterator[str]:
    """Serve ``folder`` under ``/bench/`` until the end of the block; yields the endpoint."""
    port = _free_port()
    config = scratch / "nginx.conf"
    config.write_text(_CONFIG.format(scratch=scratch, port=port, folder=folder))
    process = subprocess.Popen(
        [binary, "-c", str(config), "-e", str(scratch / "error.log")], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=_START_S)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end_s = time.monotonic() + _START_S
    while time.monotonic() < end_s and process.poll() is None:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    process.kill()
    raise RuntimeError(f"nginx did not start: {process.communicate()[1].decode(errors='replace')}")
