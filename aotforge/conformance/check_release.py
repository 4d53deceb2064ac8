"""`./dev check`: runs every check on one release folder and collects all violations."""

import os
import tempfile
import time
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from aotforge.conformance.candidate import check_folder, open_candidate
from aotforge.conformance.checks.abi import check_layout, check_symbols
from aotforge.conformance.checks.calls import check_calls, check_dropin, check_refused, check_serving
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.checks.images import check_packs
from aotforge.conformance.checks.library import check_elf, check_paths, check_platform, check_sonames
from aotforge.conformance.checks.names import check_names
from aotforge.conformance.checks.wheels import check_wheels
from aotforge.conformance.checks.windows import check_windows
from aotforge.conformance.compilers import Compiler, Hip, find_compilers, find_hip
from aotforge.conformance.findings import CheckReport, Finding, failed, not_run
from aotforge.conformance.matrix import load_matrix
from aotforge.errors import AotforgeError, UnknownNameError, suggest
from aotforge.formats.api_level import level_of
from aotforge.run.release_programs import available_programs
from vgpu.cache import check_cache

CHECKS: Mapping[str, Callable[[CheckContext], Iterable[Finding]]] = {
    "folder": lambda context: check_folder(context.candidate, context.compat.release.rocm),
    "calls": check_calls,
    "refused": check_refused,
    "drop-in": check_dropin,
    "symbols": check_symbols,
    "layout": check_layout,
    "names": check_names,
    "sonames": check_sonames,
    "platform": check_platform,
    "elf": check_elf,
    "paths": check_paths,
    "images": check_packs,
    "serving": check_serving,
    "windows": check_windows,
    "wheels": check_wheels,
}
"""By name, in the report's order."""
_OWN_PACKS = frozenset({"drop-in", "images", "serving"})
"""Checks that read image packs."""


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
    on_part: Callable[[int, int], None] | None = None,
) -> CheckReport:
    """Checks the release in `folder` against the compat data, plan and manifests of `checkout`.

    `development` accepts a library below its promised platform; `compilers` default to the newest GCC and
    clang on PATH, `hip` to the installed headers or the stand-in; `only` names the checks to run; `on_part`
    receives how many are done, and of how many. A violation is a finding. Raises ReleaseError for a folder
    that is not one, ManifestError, UnknownNameError, CacheError.
    """
    started = time.monotonic()
    for name in only:
        if name not in CHECKS:
            raise UnknownNameError(f"there is no check named {name}", cause=suggest(name, CHECKS))
    chosen = [name for name in CHECKS if name in only or not only]
    if cache is not None:
        check_cache(cache)
    findings: list[Finding] = []
    threads = ThreadPoolExecutor(max_workers=jobs or min(4, os.cpu_count() or 1))
    with tempfile.TemporaryDirectory(prefix="aotforge-check-") as work, threads as pool:
        context = make_context(folder, checkout, Path(work), compilers)
        context = replace(context, cache=cache, development=development, hip=hip or context.hip)
        for done, some in enumerate(pool.map(partial(_checked, context=context), chosen), 1):
            findings += some
            if on_part:
                on_part(done, len(chosen))
    return CheckReport(
        release=context.candidate.release.name,
        folder=str(folder),
        findings=tuple(findings),
        seconds=time.monotonic() - started,
    )


def make_context(
    folder: Path, checkout: Path, work: Path, compilers: Sequence[Compiler] | None = None
) -> CheckContext:
    """Unpacks the release in `folder` below `work`. Raises ReleaseError, also without a runtime tarball."""
    candidate = open_candidate(folder, work)
    compat = load_matrix(checkout, level_of(candidate.release.name))
    candidate.prefix()
    return CheckContext(
        candidate=candidate,
        compat=compat,
        checkout=checkout,
        work=work,
        compilers=find_compilers() if compilers is None else tuple(compilers),
        hip=find_hip(checkout),
        programs=available_programs(),
    )


def _checked(name: str, *, context: CheckContext) -> list[Finding]:
    """What a check yields, and the error that ended it."""
    findings: list[Finding] = []
    if context.upstream and name in _OWN_PACKS:
        return [not_run(name, "image packs of this project", "they are AMD's: ./dev upstream.verify")]
    try:
        findings.extend(CHECKS[name](context))
    except (AotforgeError, OSError, ValueError, zipfile.BadZipFile) as error:
        findings.append(failed(name, "the check could be run", str(error)))
    return findings
