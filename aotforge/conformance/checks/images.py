"""Checks of image packs: every planned image present, with a passed verdict and a text."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.checks.library import build_machine_traces
from aotforge.conformance.findings import Finding, failed, finding_from, not_run, passed
from aotforge.errors import AotforgeError, PackError, ToolchainError
from aotforge.formats.untrusted_file import parse_json, read_regular
from aotforge.pack.reader import OpenPack, open_pack
from aotforge.pack.verify_pack import verify_pack
from aotforge.release.contents import ReleasedImage
from aotforge.release.layout import TOP
from aotforge.release.model import MANIFEST


@dataclass(frozen=True, kw_only=True)
class _Pack:
    """An image pack: images by SHA-256, and its rows in MANIFEST.json."""

    context: CheckContext
    opened: OpenPack
    images: Mapping[str, bytes]
    rows: list[ReleasedImage]

    @property
    def name(self) -> str:
        return self.opened.name


def check_packs(context: CheckContext) -> list[Finding]:
    """Checks every image pack of the release."""
    packs = context.candidate.packs().items()
    return [finding for name, folder in packs for finding in check_pack(context, name, folder)]


def check_pack(context: CheckContext, name: str, folder: Path) -> list[Finding]:
    """Checks one image pack."""
    try:
        opened = open_pack(folder)
        images = {
            digest.hex(): data for index in opened.indexes for digest, data in opened.images(index).items()
        }
    except PackError as error:
        return [failed("images", f"{name} is complete", error.what)]
    rows = [row for one in context.candidate.release.contents.packs if one.name == name for row in one.images]
    pack = _Pack(context=context, opened=opened, images=images, rows=rows)
    return [check(pack) for check in (_profile, _digests, _verdicts, _texts, _paths, _planned)]


def _profile(pack: _Pack) -> Finding:
    signature = pack.opened.signature
    reason = f"profile {signature.profile} is not complete"
    if pack.context.development and not signature.complete:
        return passed("images", f"{pack.name}, development build", f"{reason}, as requested")
    violations = [] if signature.complete else [reason]
    what = f"{pack.name} is of a profile that may be released"
    return finding_from("images", what, violations, signature.profile)


def _digests(pack: _Pack) -> Finding:
    listed = {row.digest for row in pack.rows}
    violations = [
        *(f"{digest} is in the pack and not in {MANIFEST}" for digest in sorted(pack.images.keys() - listed)),
        *(f"{digest} is in {MANIFEST} and not in the pack" for digest in sorted(listed - pack.images.keys())),
    ]
    what = f"{pack.name} holds the images that {MANIFEST} lists, by digest"
    return finding_from("images", what, violations, f"{len(pack.images)} images")


def _verdicts(pack: _Pack) -> Finding:
    """Every image of the pack needs a row with a passed verdict, with executions behind it."""
    passed_digests, violations = set(), []
    for row in pack.rows:
        verdict, label = row.verdict, next(iter(row.labels), "?")
        if verdict is None or verdict.outcome != "passed":
            violations.append(f"{label}: {verdict.outcome if verdict else 'never executed'}")
        elif not (verdict.cases and verdict.runs > 0 and verdict.tools):
            violations.append(f"{label}: its verdict names no case, run or verifier")
        else:
            passed_digests.add(row.digest)
    missing = sorted(pack.images.keys() - passed_digests)
    violations = violations or [f"{digest}: no verdict" for digest in missing]
    what = f"every image of {pack.name} verified"
    return finding_from("images", what, violations, f"{len(passed_digests)} passed verdicts")


def _texts(pack: _Pack) -> Finding:
    """The archive of assembly texts has a text and resources for each image and for nothing else."""
    what = f"assembly text and resources of every image of {pack.name}"
    archives = pack.context.candidate.archives
    archive = next((a for a in archives if a.kind == "asm" and a.pack == pack.name), None)
    if archive is None:
        return failed("images", what, "there is no archive of texts")
    folder = archive.root / TOP / "share" / "aotriton" / "asm" / pack.name
    texts = {path.stem for path in folder.glob("*.s")}
    others = {path.name for path in folder.glob("*")} - {f"{name}.s" for name in texts} - {"resources.json"}
    unpaired = sorted(texts ^ pack.images.keys())
    violations = [f"{digest}: text without image, or image without text" for digest in unpaired]
    violations += [f"{name} is neither" for name in sorted(others)]
    try:
        rows = parse_json(read_regular(folder / "resources.json"))["images"]
        listed = {str(row["digest"]) for row in rows}
        differing = sorted(listed ^ pack.images.keys())
        violations += [f"{digest}: not the same in resources.json" for digest in differing]
    except (OSError, ValueError, KeyError, TypeError) as error:
        violations.append(f"resources.json: {error}")
    return finding_from("images", what, violations, f"{len(texts)} texts")


def _paths(pack: _Pack) -> Finding:
    violations = (
        f"image {digest[:16]}: {text}"
        for digest, data in pack.images.items()
        for text in build_machine_traces(data, pack.context.checkout)
    )
    what = f"no path or name of the build machine in an image of {pack.name}"
    return finding_from("paths", what, violations, f"{len(pack.images)} code objects, decoded")


def _planned(pack: _Pack) -> Finding:
    """Compares with this checkout's plan, in both directions: every call, choice and image."""
    from aotforge.plan.checkout import Checkout  # noqa: PLC0415 - as below
    from aotforge.plan.planner import plan_project  # noqa: PLC0415 - imports the kernels' rules

    what = f"every planned image of {pack.name} present, none unexpected"
    signature = pack.opened.signature
    try:
        plan = plan_project(Checkout(pack.context.checkout), archs=signature.archs, profile=signature.profile)
    except ToolchainError as error:
        return not_run("images", what, error.what)
    except AotforgeError as error:
        return failed("images", what, f"this checkout cannot plan it: {error.what}")
    planned = {job.key: job.label for job in plan.jobs}
    compiled = {key: label for row in pack.rows for key, label in zip(row.jobs, row.labels, strict=False)}
    violations = [
        *(f"{label} is planned and missing" for key, label in planned.items() if key not in compiled),
        *(f"{label} is not planned" for key, label in compiled.items() if key not in planned),
    ]
    if not violations:
        try:
            verify_pack(pack.opened, plan)
        except PackError as error:
            violations.append(error.what)
    elif {*planned.values()} == {*compiled.values()}:
        violations = [
            f"the same {len(planned)} calls, but {len(violations) // 2} images were compiled from sources or "
            "settings that differ from this checkout's"
        ]
    return finding_from(
        "images", what, violations, f"{len(planned)} compile jobs of profile {signature.profile}"
    )
