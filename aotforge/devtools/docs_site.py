"""`./dev docs`: the documentation as a static site, built by pinned tools; mkdocs checks every link.

mkdocs-material comes from locked requirements, mermaid (for diagrams) from npm's registry by its SHA-256.
Once both are in the cache, nothing needs a network, and a reader's browser loads nothing from elsewhere.
"""

import hashlib
import json
import posixpath
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from pydantic import BaseModel

from aotforge.base.architectures import Architectures, Profiles
from aotforge.base.child_processes import NETWORK, child_environment, run_child
from aotforge.base.downloads import download
from aotforge.base.files import (
    make_folders,
    output_errors,
    output_lock,
    staged_folder,
    waiting_lock,
    write_atomic,
)
from aotforge.base.general_costs import GeneralCosts
from aotforge.base.hazards import Hazards
from aotforge.base.tuning import Tuning
from aotforge.conformance.matrix_models import Calls, Interface, Matrix
from aotforge.devtools.card_pages import CARDS, card_page, first_page
from aotforge.errors import ReleaseError, ToolchainError
from aotforge.library.operator_functions import HEADER, function_sources
from aotforge.library.sources import RuntimeManifest
from aotforge.release.model import ReleaseManifest, load_release_manifest
from aotforge.release.record import Record
from aotforge.run.rootfs.definitions import Definition

ROOT_PAGES = {
    "README.md": "about.md",
    **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")},
}
"""Pages beside docs/, with their places on the site."""

MANIFESTS: Mapping[str, type[BaseModel]] = {
    "manifests/architectures.yaml": Architectures,
    "manifests/general_costs.yaml": GeneralCosts,
    "manifests/hazards.yaml": Hazards,
    "manifests/profiles.yaml": Profiles,
    "manifests/release.yaml": ReleaseManifest,
    "manifests/runtime.yaml": RuntimeManifest,
    "manifests/tuning/ARCH.yaml": Tuning,
    "compat/api_levels.yaml": Interface,
    "compat/pytorch.yaml": Matrix,
    "compat/pytorch_calls.yaml": Calls,
    "docker/NAME.yaml": Definition,
    "releases/RELEASE.json": Record,
}
"""Files that people write or commit, and the models that read them."""

_LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)\s#]+)(?=[#)])")


def write_pages(root: Path, folder: Path) -> None:
    """Writes every page of the checkout `root` below `folder`. Raises OutputError."""
    places = {name: place for name, place in ROOT_PAGES.items() if (root / name).is_file()}
    for path in sorted((root / "docs").rglob("*.md")):
        name = path.relative_to(root).as_posix()
        places[name] = name.removeprefix("docs/")
    texts = {name: (root / name).read_text(encoding="utf-8") for name in places}
    pages = {place: moved_links(texts[name], name, places) for name, place in places.items()}
    pages |= {name: card_page(root, name) for name in CARDS} | {"index.md": first_page(root)}
    pages |= manifest_pages() | {"reference/headers.md": headers_page(root)}
    with output_errors(folder):
        for place, text in pages.items():
            make_folders((folder / place).parent)
            (folder / place).write_text(text, encoding="utf-8")


def moved_links(text: str, name: str, places: Mapping[str, str]) -> str:
    """The page `name` with links to pages as they are at `places`; mkdocs refuses links to anything else."""

    def replace(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), match[1]))
        here = posixpath.dirname(places[name]) or "."
        return posixpath.relpath(places[target], here) if target in places else match[1]

    return _LINK.sub(replace, text)


def manifest_pages() -> dict[str, str]:
    """A page with every manifest's keys, and a JSON schema for each beside it."""
    parts = [
        "# Manifests\n",
        "Files that people write, and the release's record, as the models read them.",
        "An unknown key is an error that names file, line and key.\n",
    ]
    pages = {}
    for file, model in MANIFESTS.items():
        schema = model.model_json_schema(by_alias=True)
        name = file.replace("/", "-").rpartition(".")[0]
        pages[f"reference/schemas/{name}.json"] = json.dumps(schema, indent=1, sort_keys=True) + "\n"
        about = (model.__doc__ or "").strip().partition("\n")[0]
        parts.append(f"## {file}\n\n{about} [JSON schema](schemas/{name}.json)\n")
        needed = schema.get("required", ())
        parts += [f"- `{key}`{'' if key in needed else ', optional'}" for key in schema["properties"]]
        parts.append("")
    return {"reference/manifests.md": "\n".join(parts), **pages}


def headers_page(root: Path) -> str:
    """The public headers, and the one that a build writes for the functions of all kernel families."""
    include = root / "runtime" / "include"
    texts = {
        path.relative_to(include).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(include.rglob("*.h"))
    }
    texts[HEADER.removeprefix("include/")] = function_sources(root / "kernels")[HEADER]
    sections = [f"## {name}\n\n```cpp\n{text.strip()}\n```\n" for name, text in texts.items()]
    return "# C++ headers\n\nThe library's public headers, of `runtime/include`.\n\n" + "\n".join(sections)


_MERMAID_URL = "https://registry.npmjs.org/mermaid/-/mermaid-11.17.2.tgz"
_MERMAID_SHA256 = "6ad2f42c3fc26bbf9e45cbb6d11898972573ea52b33a5f4ff51952899f950ffd"
_MERMAID_MEMBERS = {"package/dist/mermaid.min.js": "mermaid.min.js", "package/LICENSE": "mermaid.LICENSE.txt"}
_MERMAID_LIMIT = 32 * 1024**2
_SECONDS = 60
_REQUIREMENTS = "requirements/docs.txt"


def build_site(root: Path, output: Path, *, home: Path) -> tuple[int, int]:
    """Builds the site of the checkout `root` into `output`, replaced in one step; its pages and bytes.

    Equal pages give equal files.

    Raises ToolchainError when the tools cannot be installed, ReleaseError for a dead link, OutputError.
    """
    python, mermaid = _python(root, home), _mermaid(home)
    epoch = load_release_manifest(root / "manifests" / "release.yaml").epoch
    with (
        output_lock(output),
        staged_folder(output, known="index.html") as staged,
        tempfile.TemporaryDirectory(prefix="aotforge-docs-") as scratch,
    ):
        work = Path(scratch)
        write_pages(root, work / "docs")
        assets = Path(shutil.copytree(root / "docs" / "assets", work / "docs" / "assets"))
        with tarfile.open(fileobj=BytesIO(mermaid)) as tar:
            for member, name in _MERMAID_MEMBERS.items():
                content = tar.extractfile(member)
                assert content is not None  # the archive is the pinned one
                (assets / name).write_bytes(content.read())
        shutil.copyfile(root / "docs" / "mkdocs.yml", work / "mkdocs.yml")
        command = [python, "-m", "mkdocs", "build", "--strict", "--site-dir", str(staged)]
        quiet = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
        own = child_environment({"SOURCE_DATE_EPOCH": str(epoch), **quiet})
        done = run_child(command, environment=own, cwd=work, capture_output=True)
        if done.returncode:
            raise ReleaseError(
                f"the documentation cannot be built:\n{done.stderr.strip()[-4000:]}",
                cause="a dead link, or a page that docs/mkdocs.yml does not list",
                hint="correct the page, then ./dev docs",
            )
        files = [path for path in staged.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        pages = sum(path.suffix == ".html" for path in files)
    return pages, size


def _python(root: Path, home: Path) -> str:
    """The Python with the locked requirements, installed once. Raises ToolchainError."""
    requirements = root / _REQUIREMENTS
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = home / f"docs-{digest}"
    python, made = folder / "bin" / "python", folder / ".made"
    install = [str(python), "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install += ["--only-binary", ":all:", "--require-hashes", "-r", str(requirements)]
    with output_errors(folder), waiting_lock(folder):
        if not made.is_file():
            for command in ([sys.executable, "-P", "-m", "venv", str(folder)], install):
                done = run_child(command, environment=child_environment(keep=NETWORK), capture_output=True)
                if done.returncode:
                    raise ToolchainError(
                        f"{_REQUIREMENTS} cannot be installed: {done.stderr.strip()[-600:]}",
                        cause="no package index is reachable, or a package is not the locked one",
                        hint="check the network or pip's settings, then ./dev docs",
                    )
            made.touch()
    return str(python)


def _mermaid(home: Path) -> bytes:
    """The pinned archive, from the cache or the registry. Raises ToolchainError."""
    archive = home / "cache" / "sources" / _MERMAID_SHA256 / "mermaid.tgz"
    try:
        if not archive.is_file():
            write_atomic(archive, b"".join(download(_MERMAID_URL, limit=_MERMAID_LIMIT, seconds=_SECONDS)))
        data = archive.read_bytes()
    except OSError as error:
        raise ToolchainError(f"{_MERMAID_URL} cannot be fetched: {error}", cause="no network") from error
    if hashlib.sha256(data).hexdigest() != _MERMAID_SHA256:
        raise ToolchainError(
            f"{archive} is not the pinned archive", hint=f"remove it, or put {_MERMAID_URL} there"
        )
    return data
