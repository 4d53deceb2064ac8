"""Files of archives in memory."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import PurePosixPath


@dataclass(frozen=True, kw_only=True)
class MemorySink:
    """Keeps the contents of regular files below the folder `below` (ends in a slash, or empty), by name relative to it.

    `executable` has the names of those that are; `links` the target of every link.
    """

    below: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    executable: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)

    def folder(self, path: PurePosixPath) -> None:
        """Nothing."""

    def file(self, path: PurePosixPath, *, executable: bool, pieces: Iterator[bytes]) -> None:
        """Keeps a file."""
        name = str(path)
        if not name.startswith(self.below):
            for _ in pieces:
                pass
            return
        kept = name.removeprefix(self.below)
        content = BytesIO()  # a list of pieces would be joined to a second copy
        content.writelines(pieces)
        self.files[kept] = content.getvalue()
        if executable:
            self.executable.add(kept)

    def link(self, path: PurePosixPath, target: str) -> None:
        """Keeps a link's target."""
        self.links[str(path).removeprefix(self.below)] = target
