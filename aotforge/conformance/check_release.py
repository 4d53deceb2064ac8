"""`./dev check`: runs every check on one release folder and collects all violations."""

import os
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from aotforge.conformance.candidate import check_folder, open_candidate
from aotforge.conformance.checks.abi import check_layout, check_symbols
from aotforge.conformance.checks.baseline import check_baseline, write_baseline
from aotforge.conformance.checks.calls import calls_group, refused_group
from aotforge.conformance.checks.context import CheckContext, Group
from aotforge.conformance.checks.images import check_pack
from aotforge.conformance.checks.library import check_elf, check_paths, check_platform, check_sonames
from aotforge.conformance.checks.names import check_names
from aotforge.conformance.checks.running import dropin_group, refusal_group
from aotforge.conformance.checks.windows import check_windows
from aotforge.conformance.compilers import Compiler, Hip, find_compilers, find_hip
from aotforge.conformance.findings import CheckReport, Finding, failed
from aotforge.conformance.matrix import load_matrix
from aotforge.errors import AotforgeError, UnknownNameError, suggest

OnPart = Callable[[int, int], None]
"""Called with the number of parts done and of all parts."""


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
    on_part: OnPart | None = None,
) -> CheckReport:
    """Checks the release in `folder` against the compat data, plan and manifests of `checkout`.

    `cache` keeps compilations; `development` accepts a library below its promised platform and reports it; `compilers`
    default to those on PATH, `hip` to the installed headers or else the stand-in; `only` names the checks to run.
    A violation is a finding, never an exception: see `require_ok`. Raises ReleaseError for a folder that is not a
    release, ManifestError, UnknownNameError for a check that does not exist. Nothing in `folder` is changed.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="aotforge-check-") as work:
        context = make_context(folder, checkout, Path(work), compilers)
        context = replace(context, cache=cache, development=development, hip=hip or context.hip)
        findings = _run(_chosen(_groups(context), only), jobs or min(4, os.cpu_count() or 1), on_part)
    return CheckReport(
        release=context.candidate.name,
        folder=str(folder),
        findings=tuple(findings),
        seconds=time.monotonic() - started,
    )


def make_context(
    folder: Path,
    checkout: Path,
    work: Path,
    compilers: Sequence[Compiler] | None = None,
) -> CheckContext:
    """Unpacks the release in `folder` below `work`. Raises ReleaseError, also when there is no runtime tarball."""
    compat, candidate = load_matrix(checkout), open_candidate(folder, work)
    candidate.prefix()
    found, missing = find_compilers() if compilers is None else (tuple(compilers), ())
    return CheckContext(
        candidate=candidate,
        compat=compat,
        checkout=checkout,
        work=work,
        compilers=found,
        missing=missing,
        hip=find_hip(checkout),
    )


def write_baselines(folder: Path, *, checkout: Path) -> tuple[Path, Path]:
    """Writes compat/abi of the release in `folder`. Raises ReleaseError, ToolchainError, OutputError."""
    with tempfile.TemporaryDirectory(prefix="aotforge-check-") as work:
        return write_baseline(make_context(folder, checkout, Path(work)))


def _chosen(groups: list[Group], only: Collection[str]) -> list[Group]:
    names = {one.name for one in groups}
    for name in only:
        if name not in names:
            raise UnknownNameError(f"there is no check named {name}", cause=suggest(name, names))
    return [one for one in groups if not only or one.name in only]


def _groups(context: CheckContext) -> list[Group]:
    packs = context.candidate.packs().items()
    return [
        Group("folder", [partial(check_folder, context.candidate, context.compat.release.rocm)]),
        calls_group(context),
        refused_group(context),
        dropin_group(context),
        Group("symbols", [partial(check_symbols, context)]),
        Group("layout", [partial(check_layout, context)]),
        Group("abidiff", [partial(check_baseline, context)]),
        Group("names", [partial(check_names, context)]),
        Group("sonames", [partial(check_sonames, context)]),
        Group("platform", [partial(check_platform, context)]),
        Group("elf", [partial(check_elf, context)]),
        Group("paths", [partial(check_paths, context)]),
        *(Group("images", [partial(check_pack, context, pack, folder)]) for pack, folder in packs),
        refusal_group(context),
        Group("windows", [partial(check_windows, context)]),
    ]


def _run(groups: list[Group], jobs: int, on_part: OnPart | None) -> list[Finding]:
    """Runs all parts in one pool; findings are in the groups' order."""
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = [[pool.submit(part) for part in one.parts] for one in groups]
        every = list(chain.from_iterable(futures))
        try:
            for done, future in enumerate(as_completed(every), 1):
                if not isinstance(future.exception(), AotforgeError):
                    future.result()  # raises what is not a finding
                if on_part:
                    on_part(done, len(every))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    findings: list[Finding] = []
    for one, parts in zip(groups, futures, strict=True):
        errors = [error for future in parts if (error := future.exception())]
        findings += [failed(one.name, "the check could be run", str(error)) for error in errors]
        findings += [] if errors else one.finish([future.result() for future in parts])
    return findings
