"""Images: every planned one present, none unexpected, each with a passed verdict about these very bytes, and texts beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.checks.library import build_machine_traces
from aotforge.conformance.findings import Finding, failed, finding_from, not_run, passed
from aotforge.errors import AotforgeError, PackError, ToolchainError
from aotforge.pack.reader import OpenPack, open_pack
from aotforge.pack.verify_pack import verify_pack
from aotforge.release.attestations import MANIFEST
from aotforge.release.layout import TOP


def check_pack(context: CheckContext, pack: str, folder: Path) -> list[Finding]:
    """One image pack."""
    try:
        opened = open_pack(folder)
        images = {
            digest.hex(): data for name in opened.indexes for digest, data in opened.images(name).items()
        }
    except PackError as error:
        return [failed("images", f"{pack} is whole", error.what)]
    rows = _rows(context, pack)
    return [
        _profile(context, opened),
        _digests(pack, images, rows),
        _verdicts(pack, images, rows),
        _texts(context, pack, images),
        _paths(context, pack, images),
        _planned(context, opened, rows),
    ]


def _profile(context: CheckContext, opened: OpenPack) -> Finding:
    signature, what = opened.signature, f"{opened.name} is of a profile that may be released"
    reason = f"profile {signature.profile} is not complete"
    if context.development and not signature.complete:
        return passed("images", f"{opened.name}, development build", f"{reason}, as was asked for")
    return finding_from("images", what, [] if signature.complete else [reason], signature.profile)


def _rows(context: CheckContext, pack: str) -> list[Mapping[str, Any]]:
    packs = context.candidate.manifest.get("packs", [])
    return [row for one in packs if one.get("name") == pack for row in one.get("images", [])]


def _digests(pack: str, images: Mapping[str, bytes], rows: list[Mapping[str, Any]]) -> Finding:
    said = {str(row.get("digest")) for row in rows}
    wrong = [f"{digest} is in the pack and not in {MANIFEST}" for digest in sorted(images.keys() - said)]
    wrong += [f"{digest} is in {MANIFEST} and not in the pack" for digest in sorted(said - images.keys())]
    return finding_from(
        "images", f"{pack} holds the images that {MANIFEST} lists, by digest", wrong, f"{len(images)} images"
    )


def _verdicts(pack: str, images: Mapping[str, bytes], rows: list[Mapping[str, Any]]) -> Finding:
    """A verdict stands in the row of a digest; every image of the pack needs one that passed, with runs on the virtual GPU behind it."""
    good = set()
    wrong = []
    for row in rows:
        verdict = row.get("verdict") or {}
        label = (row.get("labels") or ["?"])[0]
        if verdict.get("outcome") != "passed":
            wrong.append(f"{label}: {verdict.get('outcome', 'never executed')}")
        elif not (verdict.get("cases") and int(verdict.get("runs", 0)) > 0 and verdict.get("tools")):
            wrong.append(f"{label}: its verdict names no case, run or judge")
        else:
            good.add(str(row.get("digest")))
    wrong += [f"{digest}: no verdict" for digest in sorted(images.keys() - good) if not wrong]
    return finding_from(
        "images", f"every image of {pack} verified on the virtual GPU", wrong, f"{len(good)} passed verdicts"
    )


def _texts(context: CheckContext, pack: str, images: Mapping[str, bytes]) -> Finding:
    """The archive of assembly texts has a text and figures for each image and for nothing else."""
    what = f"assembly text and resources of every image of {pack}"
    archive = next((a for a in context.candidate.archives if a.kind == "asm" and a.pack == pack), None)
    if archive is None:
        return failed("images", what, "there is no archive of texts")
    folder = archive.root / TOP / "share" / "aotriton" / "asm" / pack
    texts = {path.stem for path in folder.glob("*.s")}
    wrong = [
        f"{digest}: text without image, or image without text" for digest in sorted(texts ^ images.keys())
    ]
    try:
        listed = {
            str(row["digest"]) for row in json.loads((folder / "resources.json").read_bytes())["images"]
        }
        wrong += [f"{digest}: not the same in resources.json" for digest in sorted(listed ^ images.keys())]
    except (OSError, ValueError, KeyError, TypeError) as error:
        wrong.append(f"resources.json: {error}")
    return finding_from("images", what, wrong, f"{len(texts)} texts")


def _paths(context: CheckContext, pack: str, images: Mapping[str, bytes]) -> Finding:
    wrong = [
        f"image {digest[:16]}: {text}"
        for digest, data in images.items()
        for text in build_machine_traces(data, context.checkout)
    ]
    return finding_from(
        "paths",
        f"no path or name of the build machine in an image of {pack}",
        wrong,
        f"{len(images)} code objects, decoded",
    )


def _planned(context: CheckContext, opened: OpenPack, rows: list[Mapping[str, Any]]) -> Finding:
    """Against this checkout's plan, in both directions: every call, choice and image."""
    from aotforge.plan.planner import plan_project  # noqa: PLC0415 - planning imports the kernels' rules

    what = f"every planned image of {opened.name} present, none unexpected"
    signature = opened.signature
    try:
        plan = plan_project(context.checkout, archs=signature.archs, profile=signature.profile)
    except ToolchainError as error:
        return not_run("images", what, error.what)
    except AotforgeError as error:
        return failed("images", what, f"this checkout cannot plan it: {error.what}")
    planned = {job.key: job.label for job in plan.jobs}
    made = {
        str(key): label
        for row in rows
        for key, label in zip(row.get("jobs", []), row.get("labels", []), strict=False)
    }
    wrong = [f"{label} is planned and missing" for key, label in planned.items() if key not in made]
    wrong += [f"{label} is not planned" for key, label in made.items() if key not in planned]
    if not wrong:
        try:
            verify_pack(opened, plan)
        except PackError as error:
            wrong.append(error.what)
    elif {*planned.values()} == {*made.values()}:
        wrong = [
            f"the same {len(planned)} calls, but {len(wrong) // 2} images were compiled from other sources or settings than this checkout's"
        ]
    return finding_from("images", what, wrong, f"{len(planned)} compile jobs of profile {signature.profile}")
