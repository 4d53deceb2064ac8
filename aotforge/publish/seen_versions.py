"""Index versions that this machine's publishers have seen; an older index is refused.

Signatures do not distinguish an index from an earlier one: who can write to the store can put an old one back, and the next publisher
would build on it, without the releases in between. Clients have python-tuf's memory (trust.py); this is the publishers'.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.files import output_errors, waiting_lock, write_atomic
from aotforge.errors import TrustError
from aotforge.formats.untrusted_file import parse_json

ROLES = ("timestamp", "snapshot", "targets")


@dataclass(frozen=True, kw_only=True)
class SeenVersions:
    """The highest version of each role, in a file per first root and address."""

    file: Path

    def check(self, versions: tuple[int, int, int], url: str) -> None:
        """Remembers the versions of timestamp, snapshot and targets. Raises TrustError for one below those remembered; CacheError."""
        with output_errors(self.file), waiting_lock(self.file):
            before = self._remembered()
            for role, now, highest in zip(ROLES, versions, before, strict=True):
                if now < highest:
                    raise TrustError(
                        f"{url} has version {now} of {role}.json; this machine has seen {highest}",
                        cause="an older index was put back there; releases that were added since are not in it",
                        hint=f"restore the newest index, from a mirror or a backup; if the older one is meant, remove {self.file}",
                    )
            if versions != before:
                write_atomic(self.file, json.dumps(dict(zip(ROLES, versions, strict=True))).encode())

    def _remembered(self) -> tuple[int, ...]:
        try:
            found = parse_json(self.file.read_bytes())
            return tuple(int(found[role]) for role in ROLES)
        except FileNotFoundError:
            return (0, 0, 0)
        except (ValueError, KeyError, TypeError):
            raise TrustError(
                f"{self.file} does not have the versions of an index",
                cause="the file was changed or cut",
                hint="compare the index with a mirror, then remove the file",
            ) from None


def seen_versions(memory: Path, first_root: bytes, url: str) -> SeenVersions:
    """The versions for a place that begins with this root, in the user's folder of earlier verified metadata."""
    name = hashlib.sha256(first_root + b"\0" + os.fsencode(url)).hexdigest()[:32]
    return SeenVersions(file=memory / f"{name}.published.json")
