"""Listings of a bucket, page by page; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

_TOKEN = "chaos:"  # our continuation tokens: this, then the last name shown
DEFAULT_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """An object, or with ``is_folder`` what S3 calls a common prefix."""

    name: str
    size_bytes: int = 0
    etag: str = ""
    modified: str = ""
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """Some entries, and the token that brings the next ones; empty at the end."""

    entries: tuple[Entry, ...]
    token: str


def page_of(entries: Iterable[Entry], token: str, size: int) -> Page:
    """The entries behind those that ``token`` ended with."""
    after = token.removeprefix(_TOKEN)
    rest = sorted((entry for entry in entries if entry.name > after), key=lambda entry: entry.name)
    shown = tuple(rest[:size])
    return Page(shown, f"{_TOKEN}{shown[-1].name}" if len(rest) > size else "")


def grouped(names: Iterable[str], prefix: str, delimiter: str) -> tuple[list[str], list[str]]:
    """The names that begin with ``prefix``, and the folders that stand for those with a delimiter behind it."""
    objects: list[str] = []
    folders: dict[str, None] = {}
    for name in names:
        if not name.startswith(prefix):
            continue
        head, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
        if found:
            folders[f"{prefix}{head}{delimiter}"] = None
        else:
            objects.append(name)
    return objects, list(folders)


def to_xml(bucket: str, prefix: str, size: int, page: Page) -> bytes:
    """A page as ListObjectsV2 answers it."""
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">',
        f"<Name>{escape(bucket)}</Name><Prefix>{escape(prefix)}</Prefix><MaxKeys>{size}</MaxKeys>",
        f"<KeyCount>{len(page.entries)}</KeyCount><IsTruncated>{str(bool(page.token)).lower()}</IsTruncated>",
    ]
    if page.token:
        parts.append(f"<NextContinuationToken>{escape(page.token)}</NextContinuationToken>")
    for entry in page.entries:
        if entry.is_folder:
            parts.append(f"<CommonPrefixes><Prefix>{escape(entry.name)}</Prefix></CommonPrefixes>")
        else:
            parts.append(
                f"<Contents><Key>{escape(entry.name)}</Key><LastModified>{entry.modified}</LastModified>"
                f"<ETag>{escape(entry.etag)}</ETag><Size>{entry.size_bytes}</Size>"
                "<StorageClass>STANDARD</StorageClass></Contents>"
            )
    return "".join([*parts, "</ListBucketResult>"]).encode()


def is_ours(token: str) -> bool:
    """Whether a continuation token was made here."""
    return token.startswith(_TOKEN)


def cut_to_page(xml: bytes, token: str, size: int) -> bytes:
    """A server's own listing, cut to one page; as it is if it fits and nothing was shown before.

    For servers that list all at once, whatever they are asked, as fake-gcs-server does.
    """
    root = ET.fromstring(xml)
    space = root.tag.rpartition("}")[0] + "}" if root.tag.startswith("{") else ""
    found = {
        element.findtext(f"{space}Key") or element.findtext(f"{space}Prefix") or "": element
        for element in [*root.findall(f"{space}Contents"), *root.findall(f"{space}CommonPrefixes")]
    }
    page = page_of((Entry(name) for name in found), token, size)
    if len(page.entries) == len(found):
        return xml
    shown = {entry.name for entry in page.entries}
    for name, element in found.items():
        if name not in shown:
            root.remove(element)
    if page.token:
        for tag, text in (("IsTruncated", "true"), ("NextContinuationToken", page.token)):
            for old in root.findall(f"{space}{tag}"):
                root.remove(old)
            ET.SubElement(root, f"{space}{tag}").text = text
    rest: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return rest
