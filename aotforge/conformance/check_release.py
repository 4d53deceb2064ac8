"""`./dev check`: runs every check on one release folder and collects all violations."""

import os
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from aotforge.base.cache_trust import check_cache
from aotforge.conformance.candidate import check_folder, open_candidate
from aotforge.conformance.checks.abi import check_layout, check_symbols
from aotforge.conformance.checks.baseline import check_baseline, write_baseline
from aotforge.conformance.checks.calls import calls_group, refused_group
from aotforge.conformance.checks.context import CheckContext, Group
from aotforge.conformance.checks.images import check_pack
from aotforge.conformance.checks.library import check_elf, check_paths, check_platform, check_sonames
from aotforge.conformance.checks.names import check_names
from aotforge.conformance.checks.running import dropin_group, refusal_group
from aotforge.conformance.checks.wheels import check_wheels
from aotforge.conformance.checks.windows import check_windows
from aotforge.conformance.compilers import Compiler, Hip, find_compilers, find_hip
from aotforge.conformance.findings import CheckReport, Finding, failed, not_run
from aotforge.conformance.matrix import load_matrix
from aotforge.errors import AotforgeError, UnknownNameError, suggest
from aotforge.formats.api_level import level_of
from aotforge.release.finalize import check_finalized_release
from aotforge.run.release_programs import available_programs, find_release_programs

_BEFORE_EXECUTION = frozenset({"folder", "sonames", "elf"})
"""Checks of files that must pass before the release's library is executed."""

_EXECUTING = frozenset({"drop-in", "layout", "refusal"})
"""Checks that execute it."""

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
    own: bool = False,
    unsandboxed: bool = False,
    on_part: OnPart | None = None,
) -> CheckReport:
    """Checks the release in `folder` against the compat data, plan and manifests of `checkout`.

    `cache` keeps compilations of an `own` release; `development` accepts a library below its promised platform and reports it; `compilers`
    default to those on PATH, `hip` to the installed headers or else the stand-in; `only` names the checks to run. The release's
    library is executed after its files passed; `own` and `unsandboxed` as in `find_release_programs`.
    A violation is a finding, never an exception: see `require_ok`. Raises ReleaseError for a folder that is not a
    release, ManifestError, UnknownNameError for a check that does not exist, ExecutorError without sandbox and consent, CacheError. Nothing in
    `folder` is changed.
    """
    started = time.monotonic()
    if cache is not None:
        check_cache(cache)
    with tempfile.TemporaryDirectory(prefix="aotforge-check-") as work:
        context = make_context(folder, checkout, Path(work), compilers)
        programs = context.programs
        if context.compilers and (not only or _EXECUTING.intersection(only)):
            programs = find_release_programs(folder.name, own=own, unsandboxed=unsandboxed)
        context = replace(
            # a header of others decides how large a compiled program is
            context,
            cache=cache if own else None,
            development=development,
            hip=hip or context.hip,
            programs=programs,
        )
        run = _Run(jobs=jobs or min(4, os.cpu_count() or 1), on_part=on_part)
        findings = run.all(_groups(context), only)
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
    candidate = open_candidate(folder, work)
    compat = load_matrix(checkout, level_of(candidate.name))
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
        programs=available_programs(),
    )


def write_baselines(folder: Path, *, checkout: Path, key: Ed25519PublicKey | None) -> tuple[Path, Path]:
    """Writes compat/abi of the release in `folder`, whose files are as its sums list them, and the sums as `key` signed them. Raises
    ReleaseError, SignatureError, ToolchainError, OutputError."""
    check_finalized_release(folder, key)
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
        Group("wheels", [partial(check_wheels, context)]),
    ]


@dataclass(kw_only=True)
class _Run:
    """Runs checks in a pool of `jobs` threads: those that read files first, then those that execute the release's library."""

    jobs: int
    on_part: OnPart | None
    done: int = 0

    def all(self, groups: list[Group], only: Collection[str]) -> list[Finding]:
        """Findings in the groups' order. When a check of `_BEFORE_EXECUTION` fails, nothing of the release is executed."""
        chosen = _chosen(groups, only)
        executing = [group for group in chosen if group.name in _EXECUTING]
        first = [
            g
            for g in groups
            if g.name not in _EXECUTING and (g in chosen or (executing and g.name in _BEFORE_EXECUTION))
        ]
        total = sum(len(group.parts) for group in (*first, *executing))
        results = dict(zip(map(id, first), self._parts(first, total), strict=True))
        broken = [
            one
            for group in first
            if group.name in _BEFORE_EXECUTION
            for one in results[id(group)]
            if one.status == "failed"
        ]
        if broken:
            what = "the release's library is executed"
            reason = f"it was not, because {broken[0].what!r} failed"
            later = [[not_run(group.name, what, reason)] for group in executing]
        else:
            later = self._parts(executing, total)
        results |= zip(map(id, executing), later, strict=True)
        unchosen = [one for one in broken if one.check not in {group.name for group in chosen}]
        return [*unchosen, *chain.from_iterable(results[id(group)] for group in chosen)]

    def _parts(self, groups: list[Group], total: int) -> list[list[Finding]]:
        """Findings of each group; all parts run in one pool."""
        with ThreadPoolExecutor(max_workers=self.jobs) as pool:
            futures = [[pool.submit(part) for part in one.parts] for one in groups]
            try:
                for future in as_completed(chain.from_iterable(futures)):
                    if not isinstance(future.exception(), AotforgeError):
                        future.result()  # raises what is not a finding
                    self.done += 1
                    if self.on_part:
                        self.on_part(self.done, total)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [_finished(one, parts) for one, parts in zip(groups, futures, strict=True)]


def _finished(group: Group, parts: list[Future[Any]]) -> list[Finding]:
    errors = [error for future in parts if (error := future.exception())]
    if errors:
        return [failed(group.name, "the check could be run", str(error)) for error in errors]
    return group.finish([future.result() for future in parts])
