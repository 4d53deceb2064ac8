"""Container images: an image that has PyTorch for ROCm, and the wheels of a release in it."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.child_processes import ENGINE, NETWORK, child_environment, run_child
from aotforge.deliver.dropin.inputs import read_torch_lib
from aotforge.errors import DropInError, ExecutorError
from aotforge.release.release import Release

ENGINES = ("docker", "podman")
DOCKERFILE = "docker/pytorch.Dockerfile"
_PROGRAM = "docker/attention.py"
_FIND = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
_SECONDS = 3600


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


class Engine:
    """The program `docker` or `podman`, by name or the first that is installed. Raises ExecutorError."""

    def __init__(self, name: str | None) -> None:
        installed = [engine for engine in ([name] if name else ENGINES) if shutil.which(engine)]
        if not installed:
            what = name or " or ".join(ENGINES)
            raise ExecutorError(f"there is no {what} on PATH", hint=f"apt-get install {name or 'podman'}")
        self.name = installed[0]

    def run(self, *words: str) -> str:
        """Standard output of a command. Raises ExecutorError."""
        own = child_environment(keep=(*NETWORK, *ENGINE))
        try:
            done = run_child([self.name, *words], environment=own, capture_output=True, timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ExecutorError(f"{self.name} {words[0]} failed: {error}") from error
        if done.returncode:
            raise ExecutorError(
                f"{self.name} {words[0]} failed:\n{(done.stdout + done.stderr).strip()[-3000:]}",
                hint=f"check `{self.name} info`; the message above is that of {self.name}",
            )
        return done.stdout.strip()


def needed_names(engine: Engine, base: str) -> tuple[str, ...]:
    """The AOTriton names that the PyTorch of an image loads. Raises DropInError, ExecutorError."""
    try:
        torch = engine.run("run", "--rm", "--network", "none", "--entrypoint", "python3", base, "-c", _FIND)
    except ExecutorError as error:
        raise DropInError(
            f"python3 of the image {base} finds no PyTorch",
            cause=error.what,
            hint="name an image in which `python3 -c 'import torch'` works",
        ) from error
    container = engine.run("create", "--network", "none", base, "true")
    try:
        with tempfile.TemporaryDirectory(prefix="aotforge-image-") as folder:
            library = f"{torch.splitlines()[-1]}/lib/libtorch_hip.so"
            try:
                engine.run("cp", f"{container}:{library}", folder)
            except ExecutorError as error:
                raise DropInError(
                    f"the PyTorch of {base} is not built for ROCm: there is no {library}", cause=error.what
                ) from error
            return read_torch_lib(Path(folder)).needed
    finally:
        engine.run("rm", "--force", container)


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
        flags = [word for item in values.items() for word in ("--build-arg", "=".join(item))]
        places = ["--target", "pytorch", "--tag", tag, "--file", str(context / DOCKERFILE), made]
        # podman's own format has no health checks
        engine.run("build", *(("--format", "docker") if engine.name == "podman" else ()), *flags, *places)
    size = int(engine.run("image", "inspect", "--format", "{{.Size}}", tag))
    return ImageReport(
        tag=tag, base=base, engine=engine.name, release=release.name, archs=tuple(archs), size=size
    )
