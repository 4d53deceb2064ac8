"""The index of a shared cache: SHA-256, size and last use of every object, by kind and key.

It is the object `objects/<its SHA-256>`; the signed index of the place names it as the target `cache/index.json`.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aotforge.errors import TrustError
from aotforge.formats.untrusted_file import parse_json
from aotforge.publish.index import OBJECTS, IndexedFile
from aotforge.publish.stores.reading import read_small
from aotforge.publish.stores.store import Reader

INDEX_LIMIT = 64 * 2**20
OBJECT_LIMIT = 2**31
USED_DAYS = 7
"""A use is recorded when the last recorded one is at least as old: not every build changes the index."""

_FORMAT = 1
_KIND = re.compile(r"[a-z]{1,20}-[0-9]{1,4}")
_SHA256 = re.compile(r"[0-9a-f]{64}")

Name = tuple[str, str]
"""Kind and key of an object."""


@dataclass(frozen=True, kw_only=True)
class SharedObject:
    """An object in a store. `used`: day of its last use, in days since 1970."""

    sha256: str
    size: int
    used: int


CacheIndex = Mapping[Name, SharedObject]


def object_name(sha256: str) -> str:
    """Name of an object in a store."""
    return f"{OBJECTS}/{sha256}"


def is_object_name(name: str) -> bool:
    """True for a name that `object_name` gives."""
    folder, _, digest = name.partition("/")
    return folder == OBJECTS and _SHA256.fullmatch(digest) is not None


def encode_index(index: CacheIndex) -> bytes:
    """The index as JSON; equal indexes give equal bytes."""
    kinds: dict[str, dict[str, tuple[str, int, int]]] = {}
    for (kind, key), one in sorted(index.items()):
        kinds.setdefault(kind, {})[key] = (one.sha256, one.size, one.used)
    return json.dumps({"format": _FORMAT, "objects": kinds}, separators=(",", ":")).encode("ascii")


def decode_index(data: bytes) -> CacheIndex:
    """Raises TrustError for bytes that `encode_index` does not write."""
    try:
        fields = parse_json(data)
        if fields["format"] != _FORMAT:
            raise ValueError(f"its format is {fields['format']!r}, not {_FORMAT}")
        return {
            (_matching(_KIND, kind), _matching(_SHA256, key)): _object(values)
            for kind, keys in fields["objects"].items()
            for key, values in keys.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TrustError(
            f"the index of the shared cache is not valid: {error}",
            cause="it was written by a later version of aotforge, or by another program",
            hint="update aotforge, or build without --cache-from",
        ) from None


def load_index(reader: Reader, file: IndexedFile | None) -> CacheIndex:
    """The index that a signed index names, empty for none. Raises TrustError for other bytes, StoreError."""
    if file is None:
        return {}
    name = object_name(file.sha256)
    data = read_small(reader, name, limit=INDEX_LIMIT)
    if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.sha256:
        raise TrustError(
            f"{reader.url}/{name} does not match the signed index",
            cause="it was changed or truncated at the source or on the way",
            hint="build without --cache-from, and inform the owner of the cache",
        )
    return decode_index(data)


def merge(
    before: CacheIndex, added: CacheIndex, used: Iterable[Name], today: int
) -> dict[Name, SharedObject]:
    """The index with new objects, and with today as the last use of others."""
    merged = {**before, **added}
    for name in used:
        if name in merged and today - merged[name].used >= USED_DAYS:
            merged[name] = replace(merged[name], used=today)
    return merged


def most_recent(index: CacheIndex, limit: int) -> dict[Name, SharedObject]:
    """The most recently used objects that together have at most `limit` bytes."""
    kept, size = {}, 0
    for name, one in sorted(index.items(), key=lambda item: (-item[1].used, item[0])):
        size += one.size
        if size > limit:
            break
        kept[name] = one
    return kept


def _object(values: Any) -> SharedObject:
    sha256, size, used = values
    if type(size) is not int or type(used) is not int or not 0 <= size <= OBJECT_LIMIT:
        raise ValueError("an object's size or day is not valid")
    return SharedObject(sha256=_matching(_SHA256, sha256), size=size, used=used)


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is not a valid name")
    return text
