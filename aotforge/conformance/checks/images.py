"""Checks of image packs: every planned image present, with a passed verdict and a text."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.checks.library import build_machine_traces
from aotforge.conformance.findings import Finding, failed, finding_from, not_run, passed, set_violations
from aotforge.errors import AotforgeError, PackError, ToolchainError
from aotforge.formats.untrusted_file import parse_json, read_regular
from aotforge.pack.reader import OpenPack, open_pack
from aotforge.pack.verify_pack import verify_pack
from aotforge.release.contents import ReleasedImage
from aotforge.release.layout import TOP
from aotforge.release.model import MANIFEST


def check_packs(context: CheckContext) -> Iterator[Finding]:
    """Checks every image pack of the release."""
    for name, folder in context.candidate.packs().items():
        yield from check_pack(context, name, folder)


def check_pack(context: CheckContext, name: str, folder: Path) -> Iterator[Finding]:
    """Checks one image pack."""
    try:
        opened = open_pack(folder)
        images = {
            digest.hex(): data for index in opened.indexes for digest, data in opened.images(index).items()
        }
    except PackError as error:
        yield failed("images", f"{name} is complete", error.what)
        return
    signature = opened.signature
    packs = context.candidate.release.contents.packs
    rows = [row for pack in packs if pack.name == name for row in pack.images]
    incomplete = [] if signature.complete else [f"profile {signature.profile} is not complete"]
    if context.development and incomplete:
        yield passed("images", f"{name}, development build", f"{incomplete[0]}, as requested")
    else:
        what = f"{name} is of a profile that may be released"
        yield finding_from("images", what, incomplete, signature.profile)
    yield finding_from(
        "images",
        f"{name} holds the images that {MANIFEST} lists, by digest",
        set_violations(
            images,
            {row.digest for row in rows},
            f"is in the pack and not in {MANIFEST}",
            f"is in {MANIFEST} and not in the pack",
        ),
        f"{len(images)} images",
    )
    yield _verdicts(name, images, rows)
    yield _texts(context, name, images)
    traces = (
        f"image {digest[:16]}: {text}"
        for digest, data in images.items()
        for text in build_machine_traces(data, context.checkout)
    )
    what = f"no path or name of the build machine in an image of {name}"
    yield finding_from("paths", what, traces, f"{len(images)} code objects, decoded")
    yield _planned(context, opened, rows)


def _verdicts(name: str, images: Mapping[str, bytes], rows: list[ReleasedImage]) -> Finding:
    """Every image of the pack needs a row with a passed verdict, with executions behind it."""
    passed_digests, violations = set(), []
    for row in rows:
        verdict, label = row.verdict, next(iter(row.labels), "?")
        if verdict is None or verdict.outcome != "passed":
            violations.append(f"{label}: {verdict.outcome if verdict else 'never executed'}")
        elif not (verdict.cases and verdict.runs > 0 and verdict.tools):
            violations.append(f"{label}: its verdict names no case, run or verifier")
        else:
            passed_digests.add(row.digest)
    missing = sorted(images.keys() - passed_digests)
    violations = violations or [f"{digest}: no verdict" for digest in missing]
    return finding_from(
        "images", f"every image of {name} verified", violations, f"{len(passed_digests)} passed verdicts"
    )


def _texts(context: CheckContext, name: str, images: Mapping[str, bytes]) -> Finding:
    """The archive of assembly texts has a text and resources for each image and for nothing else."""
    what = f"assembly text and resources of every image of {name}"
    archives = context.candidate.archives
    archive = next((a for a in archives if a.kind == "asm" and a.pack == name), None)
    if archive is None:
        return failed("images", what, "there is no archive of texts")
    folder = archive.root / TOP / "share" / "aotriton" / "asm" / name
    texts = {path.stem for path in folder.glob("*.s")}
    others = {path.name for path in folder.glob("*")} - {f"{text}.s" for text in texts} - {"resources.json"}
    unpaired = sorted(texts ^ images.keys())
    violations = [f"{digest}: text without image, or image without text" for digest in unpaired]
    violations += [f"{other} is neither" for other in sorted(others)]
    try:
        rows = parse_json(read_regular(folder / "resources.json"))["images"]
        differing = sorted({str(row["digest"]) for row in rows} ^ images.keys())
        violations += [f"{digest}: not the same in resources.json" for digest in differing]
    except (OSError, ValueError, KeyError, TypeError) as error:
        violations.append(f"resources.json: {error}")
    return finding_from("images", what, violations, f"{len(texts)} texts")


def _planned(context: CheckContext, pack: OpenPack, rows: list[ReleasedImage]) -> Finding:
    """Compares with this checkout's plan, in both directions: every call, choice and image."""
    from aotforge.plan.checkout import Checkout  # noqa: PLC0415 - as below
    from aotforge.plan.planner import plan_project  # noqa: PLC0415 - imports the kernels' rules

    what = f"every planned image of {pack.name} present, none unexpected"
    signature = pack.signature
    try:
        plan = plan_project(Checkout(context.checkout), archs=signature.archs, profile=signature.profile)
    except ToolchainError as error:
        return not_run("images", what, error.what)
    except AotforgeError as error:
        return failed("images", what, f"this checkout cannot plan it: {error.what}")
    planned = {job.key: job.label for job in plan.jobs}
    compiled = {key: label for row in rows for key, label in zip(row.jobs, row.labels, strict=False)}
    violations = [
        *(f"{label} is planned and missing" for key, label in planned.items() if key not in compiled),
        *(f"{label} is not planned" for key, label in compiled.items() if key not in planned),
    ]
    if not violations:
        try:
            verify_pack(pack, plan)
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
