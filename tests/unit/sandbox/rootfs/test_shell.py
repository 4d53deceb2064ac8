"""The command that enters a rootfs."""

from pathlib import Path

import pytest

from aotforge.sandbox.rootfs import image
from aotforge.sandbox.rootfs.definitions import RootfsImage
from aotforge.sandbox.rootfs.image import image_id, image_tag, shell_command


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_an_engine_runs_the_loaded_image_alone(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By its name an engine would look for one in registries when it has gone."""

    def find(program: str) -> str | None:
        return f"/usr/bin/{engine}" if program == engine else None

    def load(*_: object) -> None:
        """The engine has the image."""

    monkeypatch.setattr("shutil.which", find)
    monkeypatch.setattr(image, "_load", load)
    root = RootfsImage(
        name="small",
        digest="0" * 64,
        tar=tmp_path / "tar",
        python="/usr/bin/python3",
        environment=(),
        value="v",
    )
    command = list(shell_command(root, cache=tmp_path, run="true", terminal=False))
    assert command[command.index("--pull") + 1] == "never"
    assert image_id(root) in command and image_tag(root) not in command
