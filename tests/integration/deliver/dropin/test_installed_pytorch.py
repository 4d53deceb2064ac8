"""torch/lib of the active environment, found by the environment's own Python."""

import venv
from pathlib import Path

import pytest

from aotforge.deliver.pytorch.installed import find_torch_lib
from aotforge.errors import DropInError


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment without pip and without PyTorch."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder


def test_the_active_environments_pytorch_is_found(environment: Path, tmp_path: Path) -> None:
    (site,) = environment.glob("lib/python3*/site-packages")
    package = site / "torch"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('torch is located, not imported')\n")
    try:
        assert find_torch_lib({"VIRTUAL_ENV": str(environment)}) == package / "lib"
        assert find_torch_lib({"CONDA_PREFIX": str(environment)}) == package / "lib"
        assert find_torch_lib({"PATH": f"{environment}/bin"}) == package / "lib"
    finally:
        (package / "__init__.py").unlink()
        (package / "lib").rmdir()
        package.rmdir()


def test_a_torch_in_the_current_folder_is_not_taken(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DropInError, match="finds no PyTorch") as raised:
        find_torch_lib({"VIRTUAL_ENV": str(environment)})
    assert "not installed" in raised.value.cause


def test_an_environment_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(DropInError, match=r"gone/bin/python3 does not run"):
        find_torch_lib({"VIRTUAL_ENV": str(tmp_path / "gone")})
