"""Runs the checkout's generator and packer, in a sandbox without network where the machine has one."""

import json
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aotforge.base.progress import Observer
from aotforge.errors import CompileError, UnsupportedError
from aotforge.formats.archive import unpack
from aotforge.run.release_programs import ProgramResult, ReleasePrograms, available_programs
from aotforge.upstream.checkout import AotritonCheckout

_SECONDS = 3600.0
PYTHON = (sys.executable, "-s", "-P")
"""Python without packages of the user and of the current folder."""
_RUN_MODULES = """import json, runpy, sys
for module, *arguments in json.load(sys.stdin):
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise
"""
"""Modules as `python -m` runs them, in one process."""


def find_sandbox(observer: Observer) -> ReleasePrograms:
    """For programs of a checkout; a note where there is none."""
    programs = available_programs()
    if not programs.sandbox:
        observer.note("bubblewrap does not work here: AOTriton's own programs run without a sandbox")
    return programs


@dataclass(frozen=True, kw_only=True)
class Generator:
    """Tools of a checkout with the packages that they import; `folder` takes what they write."""

    checkout: AotritonCheckout
    packages: Path
    folder: Path
    programs: ReleasePrograms
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def build(self) -> Path:
        """The generator's build folder."""
        return self.folder / "build"

    @property
    def environment(self) -> dict[str, str]:
        """Variables for Python that runs modules of the checkout."""
        return {
            "PYTHONPATH": f"{self.folder / 'modules'}:{self.packages}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "AOTRITON_ENABLE_FP32": "1",
            **self.settings,
        }

    @property
    def readable(self) -> list[Path]:
        """Folders that a sandbox shows."""
        places = (self.checkout.root, self.packages, Path(sys.prefix), Path(sys.base_prefix))
        return [place for place in places if not place.is_relative_to("/usr")]

    def link_modules(self) -> None:
        """Makes the checkout's package importable."""
        (self.folder / "modules").mkdir(parents=True)
        (self.folder / "modules" / "aotriton").symlink_to(self.checkout.generator)

    def generate(self, archs: Sequence[str]) -> None:
        """Writes `Bare.*`, lists of images, `__signature__.json`. Raises CompileError, UnsupportedError."""
        self.link_modules()
        self._unpack_databases()
        database, build, root = str(self.build / "database"), str(self.build), str(self.checkout.root)
        gpus = self._gpus(archs)
        self._run(
            [
                ["aotriton.database_compose", "--database_file", f"{database}/tuning_database.sqlite3",
                 "--decomposed", database],
                ["aotriton.generate", "--target_gpus", *gpus, "--build_dir", build, "--root_dir", root],
                ["aotriton.write_image_signature", "--build_dir", build, "--root_dir", root, "--git_sha1",
                 self.checkout.commit, "--git_treesha1", self.checkout.tree, "--target_arch", *archs,
                 "--output_file", f"{build}/__signature__.json"],
            ]
        )  # fmt: skip

    def pack(self, clusters: Mapping[Path, Path], archives: Mapping[Path, Path]) -> None:
        """Packs images: lists of a functional's images by the file to write, then lists of those by archive.

        Raises CompileError.
        """
        calls = [
            ["aotriton.aks2", "-o", str(file), "--hsaco_manifest", str(names)]
            for file, names in clusters.items()
        ]
        calls += [
            ["aotriton.flatzip", "--manifest", str(names), "-o", str(file)]
            for file, names in archives.items()
        ]
        self._run(calls)

    def _gpus(self, archs: Sequence[str]) -> list[str]:
        """The generator's names of GPUs. Raises UnsupportedError for an arch that it does not know."""
        gpus = []
        for arch in archs:
            done = self._start([["aotriton.gpu_targets", "--target_arch", arch]])
            words = done.stdout.replace(";", " ").split()
            if done.status or not words:
                raise UnsupportedError(
                    f"AOTriton {self.checkout.version} has no images for {arch}: {done.stderr.strip()}",
                    cause="its generator does not know the arch",
                    hint="omit it; this project's own kernels may have it: ./dev build",
                )
            gpus += words
        return gpus

    def _unpack_databases(self) -> None:
        (self.build / "database").mkdir(parents=True)
        for archive in sorted(self.checkout.databases.rglob("*.sqlite3.tar.xz")):
            place = self.build / "database" / archive.parent.relative_to(self.checkout.databases)
            place.mkdir(parents=True, exist_ok=True)
            try:
                with tarfile.open(archive) as opened:
                    unpack(opened, place)
            except (OSError, tarfile.TarError) as error:
                raise UnsupportedError(
                    f"{archive} cannot be unpacked: {error}",
                    cause="a pointer of Git LFS instead of the file, or a damaged checkout",
                    hint="git lfs pull, or clone it again",
                ) from error

    def _run(self, calls: Sequence[Sequence[str]]) -> None:
        """Runs modules of the checkout. Raises CompileError with the end of their messages."""
        done = self._start(calls)
        if done.status is None:
            raise CompileError(f"AOTriton's generator ran for more than {_SECONDS:g} s")
        if done.status:
            names = ", ".join(dict.fromkeys(call[0] for call in calls))
            raise CompileError(
                f"AOTriton's {names} failed ({done.status}):\n{done.stderr.strip()[-2000:]}",
                cause="a package that it imports is missing, or the checkout does not work",
                hint=f"pip install --target {self.packages} -r {self.checkout.root}/requirements.txt",
            )

    def _start(self, calls: Sequence[Sequence[str]]) -> ProgramResult:
        """Runs modules of the checkout until one fails."""
        return self.programs.run(
            [*PYTHON, "-X", "utf8", "-c", _RUN_MODULES],
            # job lines name an interpreter in VIRTUAL_ENV, which is not used
            environment=self.environment | {"VIRTUAL_ENV": "/nonexistent"},
            readable=self.readable,
            writable=[self.folder],
            seconds=_SECONDS,
            text=json.dumps([list(call) for call in calls]),
            folder=self.checkout.root,
        )
