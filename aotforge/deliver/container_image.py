"""Container images: an image that has PyTorch for ROCm, and the wheels of a release in it."""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.deliver.dropin.inputs import read_torch_lib
from aotforge.errors import DropInError, ExecutorError
from aotforge.release.release import Release
from aotforge.run.engine import Engine

DOCKERFILE = "docker/pytorch.Dockerfile"
_PROGRAM = "docker/attention.py"
_FIND = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"


@dataclass(frozen=True, kw_only=True)
class ImageReport:
    """An image that was built."""

    tag: str
    base: str
    engine: str
    release: str
    archs: tuple[str, ...]
    size: int

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return vars(self) | {"archs": list(self.archs)}

    def lines(self) -> list[str]:
        """Lines of text."""
        engine = f"{self.engine} run --rm"
        return [
            f"{self.tag}: {self.base} with {self.release} for {', '.join(self.archs)}",
            f"{self.size / 1e6:.1f} MB",
            "try it on the GPU:",
            f"  {engine} --device /dev/kfd --device /dev/dri --security-opt seccomp=unconfined "
            f"{self.tag} python3 /opt/attention/attention.py",
            f"  {engine} {self.tag} python3 -m aotforge_attention    # what is loaded, or why nothing is",
        ]


def needed_names(engine: Engine, base: str) -> tuple[str, ...]:
    """The AOTriton names that the PyTorch of an image loads. Raises DropInError, ExecutorError."""
    try:
        torch = engine.output(base, "python3", "-c", _FIND)
    except ExecutorError as error:
        raise DropInError(
            f"python3 of the image {base} finds no PyTorch",
            cause=f"{error.what}: {error.cause}",
            hint="name an image in which `python3 -c 'import torch'` works",
        ) from error
    library = f"{torch.splitlines()[-1]}/lib/libtorch_hip.so"
    with tempfile.TemporaryDirectory(prefix="aotforge-image-") as folder:
        if not engine.copy(base, library, Path(folder)):
            raise DropInError(f"the PyTorch of {base} is not built for ROCm: there is no {library}")
        return read_torch_lib(Path(folder)).needed


def build_image(
    root: Path, engine: Engine, folder: Path, *, base: str, archs: Sequence[str], tag: str
) -> ImageReport:
    """Builds `tag` from `base` and the wheels of the release in `folder`. Raises ExecutorError."""
    release = Release.open(folder)
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise ExecutorError(
            f"{folder} has no wheels", hint="./dev release --wheels makes a release with them"
        )
    with tempfile.TemporaryDirectory(prefix="aotforge-image-") as made:
        context = Path(made)
        for name in (DOCKERFILE, _PROGRAM):
            (context / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(root / name, context / name)
        (context / "wheels").mkdir()
        for wheel in wheels:
            shutil.copyfile(wheel, context / "wheels" / wheel.name)
        values = {"BASE": base, "BUILDER": base, "ARCH": ",".join(archs)}
        size = engine.build(context, DOCKERFILE, tag=tag, target="pytorch", arguments=values)
    return ImageReport(
        tag=tag, base=base, engine=engine.name, release=release.name, archs=tuple(archs), size=size
    )
