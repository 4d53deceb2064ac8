"""Fuzz targets: seeds, and a function that takes any bytes; an exception that it lets out is a finding."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import Metadata

from aotforge.deliver.install.prefix import (
    RECORD,
    InstallRecord,
    changed_files,
    check_other_files,
    read_record,
    write_record,
)
from aotforge.errors import InstallError, TrustError
from aotforge.publish.index import Index
from aotforge.publish.keys import KeySet, read_root
from aotforge.publish.repository import StoreRepository
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.store import StoreError
from aotforge.publish.trust import trusted_index
from tests.campaigns.fuzzing.fuzz import Run, Target, scratch_folder
from tests.campaigns.fuzzing.reader_targets import READER_TARGETS
from tests.support.publishing import NOW, make_keys, make_release, publish


@contextmanager
def install_records() -> Iterator[tuple[Sequence[bytes], Run]]:
    """A record: a named error, or names below the prefix."""
    with scratch_folder() as folder:
        (folder / "lib").mkdir()
        (folder / "lib/a").write_bytes(b"content")
        (folder / "lib/b").symlink_to("a")
        files = {"lib/a": "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73", "lib/b": "-> a"}
        record = InstallRecord(
            release="0.11.2b-r1", archs={"gfx908": "amd"}, archives={"x.tar.gz": "0"}, files=files
        )
        write_record(folder, record)

        def run(data: bytes) -> None:
            (folder / RECORD).write_bytes(data)
            try:
                found = read_record(folder)
                assert found is not None
                for name in found.files:
                    assert (folder / name).absolute().is_relative_to(folder) and ".." not in name.split("/")
                changed_files(folder, found)
                check_other_files(folder, found)
            except InstallError as error:
                assert (error.what and error.hint) or error.cause

        yield [(folder / RECORD).read_bytes()], run


class _Place:
    """A store with an index of two releases, whose files a run replaces."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.keys = folder, make_keys(folder / "keys")
        self.store = DirectoryStore(folder / "store")
        for number in (1, 2):
            publish(make_release(folder / f"r{number}", f"0.11.2b-r{number}", size=10), self.store, self.keys)
        self.tuf = folder / "store" / "tuf"
        self.right = {path.name: path.read_bytes() for path in self.tuf.glob("*.json")}

    def put(self, files: Mapping[str, bytes]) -> None:
        for name, data in {**self.right, **files}.items():
            (self.tuf / name).write_bytes(data)

    def read(self) -> Iterator[Index]:
        """As a client without memory and as a publisher do: the index of our keys, or an error."""
        memory = self.folder / "memory"
        with suppress(TrustError, StoreError):
            yield trusted_index(self.store, self.keys.roots[0], memory).index
        with suppress(TrustError, StoreError):
            yield StoreRepository(self.store, self.keys, NOW).index
        shutil.rmtree(memory, ignore_errors=True)


_ROLES = ("timestamp.json", "2.snapshot.json", "2.targets.json", "1.root.json")


@contextmanager
def metadata_of_strangers() -> Iterator[tuple[Sequence[bytes], Run]]:
    """A file of the index with any bytes: the first byte chooses which."""
    with scratch_folder() as folder:
        place = _Place(folder)

        def run(data: bytes) -> None:
            name = _ROLES[(data[0] if data else 0) % len(_ROLES)]
            place.put({name: data[1:]})
            for index in place.read():
                assert {release.name for release in index.releases} <= {"0.11.2b-r1", "0.11.2b-r2"}
            with suppress(TrustError):
                read_root(data[1:], "a file")

        yield [bytes([number]) + place.right[name] for number, name in enumerate(_ROLES)], run


@contextmanager
def signed_targets() -> Iterator[tuple[Sequence[bytes], Run]]:
    """Targets whose content is any JSON that is validly signed and referred to: what a stolen or careless key
    can publish."""
    with scratch_folder() as folder:
        place = _Place(folder)
        sign = _resigner(place.keys)

        def run(data: bytes) -> None:
            try:
                signed = json.loads(data)
            except (ValueError, RecursionError):
                return
            if (made := sign(signed)) is not None:
                place.put(made)
                for index in place.read():
                    index.lines()
                    json.dumps(index.fields())

        yield [json.dumps(json.loads(place.right["2.targets.json"])["signed"]).encode()], run


def _resigner(keys: KeySet) -> Callable[[Any], Mapping[str, bytes] | None]:
    from tuf.api.metadata import MetaFile, Snapshot, Timestamp

    until = (NOW + timedelta(days=30)).replace(microsecond=0)

    def sign(role: str, metadata: Metadata[Any]) -> bytes:
        signer: CryptoSigner = keys.signers[role][-1]
        metadata.sign(signer)
        return metadata.to_bytes()

    def made(signed: Any) -> Mapping[str, bytes] | None:
        try:
            targets = Metadata.from_dict({"signatures": [], "signed": signed})
            data = sign("targets", targets)
            version = targets.signed.version
        except Exception:  # noqa: BLE001 - python-tuf cannot express it, so no key can sign it
            return None
        snapshot = Metadata(
            Snapshot(3, expires=until, meta={"targets.json": MetaFile.from_data(version, data, ["sha256"])})
        )
        third = sign("snapshot", snapshot)
        timestamp = Timestamp(3, expires=until, snapshot_meta=MetaFile.from_data(3, third, ["sha256"]))
        return {
            f"{version}.targets.json": data,
            "3.snapshot.json": third,
            "timestamp.json": sign("timestamp", Metadata(timestamp)),
        }

    return made


_INDEX = (
    *("publish/trust", "publish/repository", "publish/index", "publish/keys"),
    *("stores/directory", "stores/reading", "stores/store", "/tuf/"),
)
"""What reads an index. Transports, and what publishes, have no bytes of a fuzzer."""

TARGETS: Mapping[str, Target] = {
    "install records": Target(open=install_records, modules=("deliver/install/",)),
    "index of strangers": Target(open=metadata_of_strangers, modules=_INDEX),
    "signed targets": Target(open=signed_targets, modules=_INDEX),
    **READER_TARGETS,
}
"""Name to target."""
