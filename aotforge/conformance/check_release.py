"""`invoke check`: every check on one release folder, from its tarballs alone, all violations collected."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from aotforge.conformance.candidate import Candidate, check_folder, open_candidate
from aotforge.conformance.checks.abi import check_layout, check_symbols
from aotforge.conformance.checks.baseline import check_baseline, write_baseline
from aotforge.conformance.checks.calls import calls_group, refused_group
from aotforge.conformance.checks.context import CheckContext, Group, single
from aotforge.conformance.checks.images import check_pack
from aotforge.conformance.checks.library import check_elf, check_names, check_paths, check_platform
from aotforge.conformance.checks.running import dropin_group, refusal_group
from aotforge.conformance.checks.windows import check_windows
from aotforge.conformance.compilers import (
    CompilationCache,
    Compiler,
    Hip,
    find_compilers,
    find_hip,
    standin_hip,
    tree_digest,
)
from aotforge.conformance.findings import CheckReport, Finding, failed
from aotforge.conformance.matrix import Compatibility, load_matrix
from aotforge.errors import AotforgeError, ReleaseError, UnknownNameError, suggest

OnGroup = Callable[[int, int], None]
"""Called with parts done and parts in all."""


def check_release(
    folder: Path,
    *,
    checkout: Path,
    cache: Path | None,
    jobs: int | None = None,
    development: bool = False,
    compilers: Sequence[Compiler] | None = None,
    hip: Hip | None = None,
    only: Collection[str] = (),
    on_part: OnGroup | None = None,
) -> CheckReport:
    """Checks the release in `folder` against the compat data, plan and manifests of `checkout`; nothing in `folder` is changed.

    `cache` keeps compilations by everything that decides them; None keeps nothing. `development` accepts a library below its promised
    platform, and says so. `compilers` default to those on PATH, `hip` to the installed headers or else the checkout's declarations. `only` names
    checks to run instead of all: then the report proves no more than these.
    A violation is a finding, never an exception; see `require_ok`. Raises ReleaseError for a folder that is no release, ManifestError,
    UnknownNameError for a check that does not exist.
    """
    started = time.monotonic()
    compat = load_matrix(checkout)
    with tempfile.TemporaryDirectory(prefix="aotforge-check-") as name:
        work = Path(name)
        candidate = open_candidate(folder, work)
        with make_context(candidate, compat, checkout, work, cache, development, compilers, hip) as context:
            findings = _run(_chosen(_groups(context), only), jobs or min(4, os.cpu_count() or 1), on_part)
    return CheckReport(
        release=candidate.name,
        folder=str(folder),
        findings=tuple(findings),
        seconds=time.monotonic() - started,
    )


@contextmanager
def make_context(
    candidate: Candidate,
    compat: Compatibility,
    checkout: Path,
    work: Path,
    cache: Path | None,
    development: bool = False,
    compilers: Sequence[Compiler] | None = None,
    hip: Hip | None = None,
) -> Iterator[CheckContext]:
    """What every check gets. Raises ReleaseError when there is no runtime tarball."""
    here, missing = find_compilers() if compilers is None else (tuple(compilers), ())
    prefix = candidate.prefix()
    yield CheckContext(
        candidate=candidate,
        compat=compat,
        checkout=checkout,
        work=work,
        cache=cache,
        prefix=prefix,
        headers=tree_digest(prefix / "include"),
        compilers=here,
        missing=missing,
        hip=hip or find_hip(checkout),
        standin=standin_hip(checkout),
        compilations=CompilationCache(work=work, cache=cache),
        development=development,
        lock=threading.Lock(),
    )


def write_baselines(folder: Path, *, checkout: Path) -> tuple[Path, Path]:
    """Writes compat/abi of the release in `folder`. Raises ReleaseError, ToolchainError, OutputError."""
    with tempfile.TemporaryDirectory(prefix="aotforge-check-") as name:
        candidate = open_candidate(folder, Path(name))
        with make_context(candidate, load_matrix(checkout), checkout, Path(name), None) as context:
            return write_baseline(context)


def newest_release(dist: Path) -> Path:
    """The release folder that was written last. Raises ReleaseError when there is none."""
    found = [path.parent for path in dist.glob("[!.]*/MANIFEST.json")]
    if not found:
        raise ReleaseError(
            f"{dist} holds no release", hint="build one (`./dev build --arch gfx908`), or name its folder"
        )
    return max(found, key=lambda path: (path / "MANIFEST.json").stat().st_mtime)


def _chosen(groups: list[Group], only: Collection[str]) -> list[Group]:
    names = {group.name for group in groups}
    for name in only:
        if name not in names:
            raise UnknownNameError(f"there is no check named {name}", cause=suggest(name, names))
    return [group for group in groups if not only or group.name in only]


def _groups(context: CheckContext) -> list[Group]:
    from aotforge.release.release_manifest import load_release_manifest  # noqa: PLC0415

    rocms = load_release_manifest(context.checkout / "manifests" / "release.yaml").rocm
    candidate = context.candidate
    return [
        single("folder", partial(check_folder, candidate, rocms)),
        calls_group(context),
        refused_group(context),
        dropin_group(context),
        single("symbols", partial(check_symbols, context)),
        single("layout", partial(check_layout, context)),
        single("abidiff", partial(check_baseline, context)),
        single("names", partial(check_names, context)),
        single("platform", partial(check_platform, context)),
        single("elf", partial(check_elf, context)),
        single("paths", partial(check_paths, context)),
        *(single("images", partial(check_pack, context, pack, at)) for pack, at in candidate.packs().items()),
        refusal_group(context),
        single("windows", partial(check_windows, context)),
    ]


def _run(groups: list[Group], jobs: int, on_part: OnGroup | None) -> list[Finding]:
    """All parts in one pool; findings in the groups' order."""
    total, done, lock = sum(len(group.parts) for group in groups), 0, threading.Lock()

    def watched(part: Callable[[], Any]) -> Any:
        nonlocal done
        try:
            return part()
        except AotforgeError as error:
            return error
        finally:
            with lock:
                done += 1
                if on_part:
                    on_part(done, total)

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = [[pool.submit(watched, part) for part in group.parts] for group in groups]
        try:
            results = [[future.result() for future in group] for group in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    findings: list[Finding] = []
    for group, found in zip(groups, results, strict=True):
        errors = [result for result in found if isinstance(result, AotforgeError)]
        findings += [failed(group.name, "the check could be run", str(error)) for error in errors]
        if not errors:
            findings += group.finish(found)
    return findings
