"""Publishing releases to stores under a signed index, and checking that index as everyone else does (`docs/publishing.md`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotforge.lazy import lazy_names

if TYPE_CHECKING:
    from aotforge.publish.change import mirror, renew_index, yank_release
    from aotforge.publish.keys import KeySet, create_keys, load_keys, rotate_keys
    from aotforge.publish.run import publish_errors, publish_release
    from aotforge.publish.trust import Trusted, trusted_index, trusted_root
    from aotforge.publish.values import Index, IndexedFile, IndexedRelease, Publication

__all__ = [
    "Index",
    "IndexedFile",
    "IndexedRelease",
    "KeySet",
    "Publication",
    "Trusted",
    "create_keys",
    "load_keys",
    "mirror",
    "publish_errors",
    "publish_release",
    "renew_index",
    "rotate_keys",
    "trusted_index",
    "trusted_root",
    "yank_release",
]

if not TYPE_CHECKING:
    # python-tuf and cryptography take a third of a second to import
    __getattr__ = lazy_names(
        __name__,
        {
            **dict.fromkeys(
                ("Index", "IndexedFile", "IndexedRelease", "Publication"), "aotforge.publish.values"
            ),
            **dict.fromkeys(("KeySet", "create_keys", "load_keys", "rotate_keys"), "aotforge.publish.keys"),
            **dict.fromkeys(("Trusted", "trusted_index", "trusted_root"), "aotforge.publish.trust"),
            **dict.fromkeys(("publish_errors", "publish_release"), "aotforge.publish.run"),
            **dict.fromkeys(("mirror", "renew_index", "yank_release"), "aotforge.publish.change"),
        },
    )
