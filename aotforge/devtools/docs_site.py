"""`./dev docs`: the documentation as a static site, built by pinned tools, with every link checked.

mkdocs-material comes from locked requirements, mermaid (for diagrams) from npm's registry by its SHA-256. Once both are in the cache,
nothing needs a network, and a reader's browser loads nothing from elsewhere.
"""

import hashlib
import shutil
import sys
import tarfile
import tempfile
import urllib.error
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path

from aotforge.base.child_processes import child_environment, run_child
from aotforge.base.downloads import download
from aotforge.base.files import (
    make_folders,
    output_errors,
    output_lock,
    staged_folder,
    waiting_lock,
    write_atomic,
)
from aotforge.devtools.docs_pages import write_pages
from aotforge.devtools.site_links import site_faults
from aotforge.errors import ReleaseError, ToolchainError
from aotforge.release.model import load_release_manifest
from aotforge.run.pip_download import run_pip

MERMAID_VARIABLE = "AOTFORGE_MERMAID"
"""Environment variable: path of mermaid's archive, for machines without a network."""

_MERMAID_URL = "https://registry.npmjs.org/mermaid/-/mermaid-11.17.2.tgz"
_MERMAID_SHA256 = "6ad2f42c3fc26bbf9e45cbb6d11898972573ea52b33a5f4ff51952899f950ffd"
_MERMAID_MEMBERS = {"package/dist/mermaid.min.js": "mermaid.min.js", "package/LICENSE": "mermaid.LICENSE.txt"}
_MERMAID_LIMIT = 32 * 1024**2
_SECONDS = 60
_REQUIREMENTS = "requirements/docs.txt"
_PACKAGE_BYTES = 2**28
_LISTED = 20


@dataclass(frozen=True, kw_only=True)
class SiteReport:
    """Where the site is, and its number of pages and bytes."""

    folder: str
    pages: int
    bytes: int

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Lines of text."""
        return [f"{self.folder}/index.html: {self.pages} pages, {self.bytes / 1e6:.1f} MB, no dead links"]


def build_site(root: Path, output: Path, *, home: Path, environment: Mapping[str, str]) -> SiteReport:
    """Builds the site of the checkout `root` into `output`, replaced in one step. Equal pages give equal files.

    Raises ToolchainError when the tools cannot be installed, ReleaseError with every dead link, UnsupportedError, OutputError.
    """
    python = _python(root, home)
    epoch = load_release_manifest(root / "manifests" / "release.yaml").epoch
    with (
        output_lock(output),
        staged_folder(output, known="index.html") as staged,
        tempfile.TemporaryDirectory(prefix="aotforge-docs-") as scratch,
    ):
        work = Path(scratch)
        write_pages(root, work / "docs")
        shutil.copytree(root / "docs" / "assets", work / "docs" / "assets")
        _unpack_mermaid(home, work / "docs" / "assets", environment)
        shutil.copyfile(root / "docs" / "mkdocs.yml", work / "mkdocs.yml")
        command = [python, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(staged)]
        quiet = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
        own = child_environment({"SOURCE_DATE_EPOCH": str(epoch), **quiet})
        done = run_child(command, environment=own, cwd=work, capture_output=True)
        if done.returncode:
            raise ReleaseError(
                f"the documentation cannot be built:\n{done.stderr.strip()[-4000:]}",
                cause="a link to a page or a heading that does not exist, or a page that docs/mkdocs.yml does not list",
                hint="correct the page, then ./dev docs",
            )
        if faults := sorted(set(site_faults(staged))):
            more = f"\n... and {len(faults) - _LISTED} more" if len(faults) > _LISTED else ""
            raise ReleaseError(
                "the site has dead links:\n" + "\n".join(faults[:_LISTED]) + more,
                hint="correct the pages, then ./dev docs",
            )
        files = [path for path in staged.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        pages = sum(path.suffix == ".html" for path in files)
    return SiteReport(folder=str(output), pages=pages, bytes=size)


def _python(root: Path, home: Path) -> str:
    """The Python of the environment with the locked requirements, which is made once. Raises ToolchainError."""
    requirements = root / _REQUIREMENTS
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = home / f"docs-{digest}"
    python, made = folder / "bin" / "python", folder / ".made"
    with output_errors(folder):
        make_folders(folder)
        with waiting_lock(folder):
            if made.is_file():
                return str(python)
            install = [str(python), "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            for command in (
                [sys.executable, "-P", "-m", "venv", str(folder)],
                [*install, "--only-binary", ":all:", "--require-hashes", "-r", str(requirements)],
            ):
                if trouble := run_pip(command, limit=_PACKAGE_BYTES):
                    raise ToolchainError(
                        f"{_REQUIREMENTS} cannot be installed: {trouble[-600:]}",
                        cause="no package index is reachable, or a package is not the locked one",
                        hint="check the network or pip's settings, then ./dev docs",
                    )
            made.touch()
    return str(python)


def _unpack_mermaid(home: Path, folder: Path, environment: Mapping[str, str]) -> None:
    archive = home / "cache" / "sources" / _MERMAID_SHA256 / "mermaid.tgz"
    data = archive.read_bytes() if archive.is_file() else b""
    if hashlib.sha256(data).hexdigest() != _MERMAID_SHA256:
        data = _mermaid_archive(environment.get(MERMAID_VARIABLE, ""))
        write_atomic(archive, data)
    with output_errors(folder), tarfile.open(fileobj=BytesIO(data)) as tar:
        make_folders(folder)
        for member, name in _MERMAID_MEMBERS.items():
            content = tar.extractfile(member)
            assert content is not None  # the archive is the pinned one
            (folder / name).write_bytes(content.read())


def _mermaid_archive(named: str) -> bytes:
    """The pinned archive, from the file `named` or from the registry. Raises ToolchainError."""
    hint = f"fetch {_MERMAID_URL} elsewhere and set {MERMAID_VARIABLE} to its path"
    try:
        fetched = download(_MERMAID_URL, limit=_MERMAID_LIMIT, seconds=_SECONDS)
        data = Path(named).read_bytes() if named else b"".join(fetched)
    except (OSError, urllib.error.URLError) as error:
        raise ToolchainError(f"mermaid cannot be fetched: {error}", cause="no network", hint=hint) from error
    if hashlib.sha256(data).hexdigest() != _MERMAID_SHA256:
        raise ToolchainError(
            f"{named or _MERMAID_URL} is not the pinned archive",
            cause="a damaged or replaced file",
            hint=hint,
        )
    return bytes(data)
