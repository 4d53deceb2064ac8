"""Containers that `reap` removes: by name and labels, without an engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aotforge.sandbox.executors.containers import ContainerExecutor
from aotforge.sandbox.executors.owner import DEADLINE, LABEL, Owner, machine, new_name


class Listing(ContainerExecutor):
    """An engine that has containers, and nothing else."""

    name = "listing"

    def __init__(self, folder: Path, containers: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__(folder)
        self.containers = dict(containers)

    def labelled(self) -> list[tuple[str, Mapping[str, str]]]:
        return list(self.containers.items())

    def remove(self, name: str) -> bool:
        return self.containers.pop(name, None) is not None

    def require_image(self, rootfs: Any) -> None:
        raise NotImplementedError

    def start_container(self, name: str, step: Any, rootfs: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("own", ["0000000000000000.1", machine()])
def test_labels_of_an_image_do_not_remove_its_containers(tmp_path: Path, own: str) -> None:
    """A container of any image with these labels, which the user runs, was removed."""
    gone = Owner(own, 2**22 + 1, 1)
    marks = {LABEL: str(gone), DEADLINE: "0"}
    ours = new_name(gone)
    others = ["database", "aotforge-database", new_name(Owner(own, 2**22 + 2, 1))]
    engine = Listing(tmp_path, dict.fromkeys([ours, *others], marks))
    assert engine.reap(kept=True) == [ours]
    assert list(engine.containers) == others
