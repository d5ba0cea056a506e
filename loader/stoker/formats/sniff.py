"""What a file that is no shard looks like, for messages."""

from __future__ import annotations

_SIGNS: tuple[tuple[bytes, str], ...] = (
    (b"\x28\xb5\x2f\xfd", "zstd data; decompress it, with `unzstd`"),
    (b"\xfd7zXZ\0", "xz data; decompress it, with `unxz`"),
    (b"BZh", "bzip2 data; decompress it, with `bunzip2`"),
    (b"PK\x03\x04", "a zip archive; unpack it and pack it with tar, or read the folder with stoker.files()"),
    (b"PAR1", "a Parquet file; read it with stoker.parquet()"),
    (b"\x89PNG", "a PNG picture; read folders of pictures with stoker.files()"),
    (b"\xff\xd8\xff", "a JPEG picture; read folders of pictures with stoker.files()"),
    (b"version https://git-lfs", "a Git LFS pointer; fetch the content with `git lfs pull`"),
    (b"<", "a web page or XML, perhaps a server's error message; look at it and download it again"),
    (b"{", "JSON; narrow the pattern to shards"),
)


def looks_like(start: bytes) -> str:
    """A guess, with what to do, from the first bytes of a file."""
    stripped = start.lstrip()
    for sign, meaning in _SIGNS:
        if start.startswith(sign) or (sign in (b"<", b"{") and stripped.startswith(sign)):
            return meaning
    text = "text" if start and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in start) else "something else"
    return f"{text}; narrow the pattern to shards, or make the shard again"
