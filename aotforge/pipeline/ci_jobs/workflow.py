"""GitHub workflows, written from ci/ and manifests/ci.yaml; `./dev lint` checks them with zizmor."""

import re
from collections.abc import Mapping
from pathlib import Path

from aotforge.base.files import write_atomic
from aotforge.errors import ManifestError, ShardError, suggest
from aotforge.pipeline.ci_jobs.ci_manifest import CiManifest, load_ci_manifest
from aotforge.pipeline.ci_jobs.jobs import PARTS

SOURCES, WRITTEN = Path("ci"), Path(".github", "workflows")
_PLACE = re.compile(r"<<([a-z ]+)>>")


def generate(root: Path) -> tuple[Path, ...]:
    """Writes every workflow that differs from its source and returns those. Raises ManifestError, OutputError."""
    wanted = workflows(root)
    changed = differences(root, wanted)
    for path in changed:
        if path in wanted:
            write_atomic(root / path, wanted[path].encode())
        else:
            (root / path).unlink()
    return tuple(changed)


def check_generated(root: Path) -> None:
    """Raises ShardError when a workflow differs from its source."""
    if found := differences(root, workflows(root)):
        raise ShardError(
            "workflows differ from their sources:\n"
            + "\n".join(f"  {path}: {what}" for path, what in found.items()),
            cause="a source or manifests/ci.yaml was changed, or a workflow by hand",
            hint="change ci/ and manifests/ci.yaml, then ./dev ci.generate, and commit its output",
        )


def workflows(root: Path) -> dict[Path, str]:
    """Text by path below `root`. Raises ManifestError for an unknown placeholder."""
    manifest = load_ci_manifest(root / "manifests")
    return {
        WRITTEN / source.name: write_workflow(source.read_text(encoding="utf-8"), manifest, source)
        for source in sorted((root / SOURCES).glob("*.yml"))
    }


def differences(root: Path, wanted: Mapping[Path, str]) -> dict[Path, str]:
    """Differences between the existing workflows and `wanted`, by path."""
    existing = {path.relative_to(root) for path in (root / WRITTEN).glob("*.y*ml")}
    found = dict.fromkeys(sorted(existing - set(wanted)), "has no source")
    for path, text in wanted.items():
        if path not in existing:
            found[path] = "is missing"
        elif (root / path).read_bytes() != text.encode():
            found[path] = "differs from its source"
    return found


def write_workflow(source: str, manifest: CiManifest, place: Path) -> str:
    """The workflow of a source. Raises ManifestError naming `place` for an unknown placeholder."""
    values = {
        "branch": manifest.github.branch,
        "runner": manifest.github.runner,
        "retention": str(manifest.github.retention_days),
        "parts": PARTS,
        **{f"action {name}": action.uses for name, action in manifest.github.actions.items()},
        **{f"timeout {name}": str(value) for name, value in manifest.timeouts.model_dump().items()},
    }

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise ManifestError(
                f"{place}: unknown placeholder <<{found[1]}>>", hint=suggest(found[1], values)
            )
        return values[found[1]]

    lines = source.splitlines()
    while lines and (lines[0].startswith("#") or not lines[0]):  # the source's own introduction
        lines.pop(0)
    head = [f"# Written by `./dev ci.generate` from ci/{place.name} and manifests/ci.yaml: change those.", ""]
    return _PLACE.sub(value, "\n".join([*head, *lines]) + "\n")
