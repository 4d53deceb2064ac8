"""Triton's cache of compiled kernels, as the CPU back end uses it: its code is executed."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from triton import knobs
from triton.runtime.cache import FileCacheManager


def use_checked_cache() -> None:
    """Makes Triton use `CheckedCache`, unless TRITON_CACHE_MANAGER names another one."""
    if not os.environ.get("TRITON_CACHE_MANAGER"):
        knobs.cache.manager_class = CheckedCache


class CheckedCache(FileCacheManager):  # type: ignore[misc] # Triton has no types
    """A group of files counts while each has the digest that it was stored with."""

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Stores a group, with the digests of its files."""
        digests = {name: _digest(Path(path)) for name, path in group.items()}
        text = json.dumps({"child_paths": group, "sha256": digests})
        return str(self.put(text, f"__grp__{filename}", binary=False))

    def get_group(self, filename: str) -> dict[str, str] | None:
        """The paths of a group; None, so that Triton compiles again, when one of its files was changed."""
        try:
            stored = json.loads(Path(self._make_path(f"__grp__{filename}")).read_bytes())
            group, digests = dict(stored["child_paths"]), dict(stored["sha256"])
            if any(Path(path).parent != Path(self.cache_dir) for path in group.values()):
                return None
            intact = {name: _digest(Path(path)) for name, path in group.items()} == digests
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return group if intact else None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
