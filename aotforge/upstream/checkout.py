"""A checkout of ROCm/aotriton: its version, commit and layout."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.git import first_line, run_git
from aotforge.errors import UnsupportedError

_VERSION = re.compile(r"AOTRITON_VERSION_(MAJOR|MINOR|PATCH)_INT\s+(\d+)")
_KNOWN = (0, 13)
_COMMIT, _TREE = "AOTRITON_CI_SUPPLIED_SHA1", "AOTRITON_GIT_TREESHA1"
"""Variables by which AOTriton's own build gets both where there is no repository."""
_HEAD_DIMS = "AOTRITON_FLASH_BLOCK_DMODEL"
"""AOTriton's variable: the head_dims that its generator makes code for."""


@dataclass(frozen=True, kw_only=True)
class CheckoutRequest:
    """Something for `archs` from the checkout `source`, with the Triton in `packages`.

    `head_dims`: those of the generator, all when empty.
    """

    source: Path
    archs: tuple[str, ...]
    packages: Path
    output: Path
    cache: Path
    environment: Mapping[str, str]
    head_dims: tuple[int, ...] = ()
    jobs: int | None = None


@dataclass(frozen=True, kw_only=True)
class AotritonCheckout:
    """A checkout of a version whose layout is known."""

    root: Path
    version: str
    commit: str
    tree: str

    @property
    def generator(self) -> Path:
        """The package `aotriton`: generator and packer."""
        return self.root / "python"

    @property
    def kernels(self) -> Path:
        """Folder of the Triton sources, which import each other absolutely."""
        return self.root / "modules" / "flash" / "kernel"

    @property
    def databases(self) -> Path:
        """Folder of the archives of tuning data."""
        return self.root / "modules" / "database"


def open_checkout(root: Path, environment: Mapping[str, str]) -> AotritonCheckout:
    """The checkout in `root`. Raises UnsupportedError for another layout, and for files that git does not
    have."""
    version = _version(root)
    if version[:2] != _KNOWN:
        raise UnsupportedError(
            f"{root} is AOTriton {'.'.join(map(str, version))}, whose layout is not known",
            cause="generator, packer and places of the sources differ between minor versions",
            hint="check out 0.13b",
        )
    commit, tree = _revision(root, environment)
    checkout = AotritonCheckout(root=root, version="{}.{}.{}".format(*version), commit=commit, tree=tree)
    parts = (checkout.generator / "generate.py", checkout.generator / "flatzip.py", checkout.kernels)
    for path in (*parts, root / "LICENSE"):
        if not path.exists():
            raise UnsupportedError(
                f"{root} has no {path.relative_to(root)}",
                cause="AOTriton 0.13 has, so it is an incomplete checkout or a fork",
                hint="git clone --branch 0.13b https://github.com/ROCm/aotriton",
            )
    return checkout


def generator_settings(head_dims: tuple[int, ...]) -> dict[str, str]:
    """Variables of the generator. Raises UnsupportedError for a single head_dim."""
    if len(head_dims) == 1:
        raise UnsupportedError(
            f"--head-dims {head_dims[0]} names one value",
            cause="with a single value AOTriton's generator mixes the settings of all head_dims",
            hint=f"name two or more: --head-dims {head_dims[0]},128",
        )
    return {_HEAD_DIMS: ",".join(map(str, head_dims))} if head_dims else {}


def revision_settings(checkout: AotritonCheckout) -> dict[str, str]:
    """Variables for AOTriton's own build, which then does without git."""
    return {_COMMIT: checkout.commit, _TREE: checkout.tree}


def _version(root: Path) -> tuple[int, ...]:
    try:
        text = (root / "CMakeLists.txt").read_text(encoding="utf-8")
    except OSError as error:
        raise UnsupportedError(
            f"{root} is not a checkout of AOTriton: CMakeLists.txt: {error.strerror}",
            hint="git clone --branch 0.13b https://github.com/ROCm/aotriton",
        ) from error
    numbers = dict(_VERSION.findall(text))
    if len(numbers) != 3:
        raise UnsupportedError(
            f"{root}/CMakeLists.txt has no version of AOTriton",
            cause="another project, or a version before 0.10",
            hint="git clone --branch 0.13b https://github.com/ROCm/aotriton",
        )
    return tuple(int(numbers[name]) for name in ("MAJOR", "MINOR", "PATCH"))


def _revision(root: Path, environment: Mapping[str, str]) -> tuple[str, str]:
    """Commit and tree. Raises UnsupportedError where they do not describe the files."""
    if not (root / ".git").exists():
        named = environment.get(_COMMIT, ""), environment.get(_TREE, "")
        if all(re.fullmatch(r"[0-9a-f]{7,64}", digest) for digest in named):
            return named
        raise UnsupportedError(
            f"{root} is not a git repository",
            cause="the packs have the commit and the tree that they were built from",
            hint=f"set {_COMMIT} and {_TREE}, as for AOTriton's own build",
        )
    changed = run_git(root, "status", "--porcelain", "--ignore-submodules=all")
    if changed.returncode or changed.stdout:
        trouble = changed.stdout.splitlines()[0].strip() if changed.stdout else first_line(changed)
        raise UnsupportedError(
            f"{root} differs from its commit: {trouble}",
            cause="the packs would name a commit that they were not built from",
            hint="commit the changes, or remove them with git restore and git clean",
        )
    digests = [run_git(root, "rev-parse", name).stdout.strip() for name in ("HEAD", "HEAD^{tree}")]
    return digests[0], digests[1]
