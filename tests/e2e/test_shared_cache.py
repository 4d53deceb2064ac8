"""A release built on an empty machine from a shared cache, with one of its objects poisoned."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from aotforge.publish.keys import create_keys, read_root
from aotforge.publish.shared_cache import load_list
from aotforge.publish.stores.directory import DirectoryStore
from tests.e2e.checkouts import HOME, build_json, copy_checkout, tarballs
from tests.support.publishing import NOW, ROOT

BUILD = ("--profile", "smoke", "--only", "add")


def named_objects(place: Path) -> list[str]:
    return [path.name for path in (place / "objects").rglob("*") if path.is_file()]


def test_an_empty_machine_builds_from_a_shared_cache_and_makes_again_what_is_poisoned(tmp_path: Path) -> None:
    create_keys(tmp_path / "keys", now=NOW, repository=ROOT, root_keys=1, threshold=1)
    place = tmp_path / "shared"
    checkout = copy_checkout(tmp_path / "checkout")
    trusted = ("--cache", str(HOME / "cache"), "--output", str(tmp_path / "first"))
    settings, keys = checkout / "aotforge.toml", f"cache-keys = '{tmp_path / 'keys'}'\n"
    settings.write_text(f"{keys}cache-to = '{place}'\n")
    first = build_json(checkout, *BUILD, *trusted)
    root = read_root((tmp_path / "keys" / "roots" / "1.root.json").read_bytes(), "it").signed
    index = load_list(DirectoryStore(place), root)
    kinds = Counter(kind for kind, _ in index)
    assert kinds["library-2"] == 1
    assert {kinds[kind] for kind in kinds if kind != "library-2"} == {first["images"]}
    # a release that is up to date fills another place, too
    settings.write_text(f"{keys}cache-to = '{tmp_path / 'late'}'\n")
    late = build_json(checkout, *BUILD, *trusted)
    assert not late["fresh"] and sorted(named_objects(tmp_path / "late")) == sorted(named_objects(place))
    victim = min(
        (one for (kind, _), one in index.items() if kind.startswith("images")), key=lambda one: one.size
    )
    poisoned = place / victim.name
    poisoned.write_bytes(poisoned.read_bytes()[:-1] + b"!")
    settings.write_text(f"cache-root = '{tmp_path / 'keys' / 'roots' / '1.root.json'}'\n")
    report = build_json(checkout, *BUILD, "--cache-from", str(place))
    assert (report["compiled"], report["executed"]) == (1, 0)
    refused, summary = report["shared_cache"]
    assert refused.endswith("has other content than the signed list states; it is dropped and made again")
    assert "1 refused" in summary
    assert tarballs(report) == tarballs(first)
