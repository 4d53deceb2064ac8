"""GitHub workflows: written from their sources in ci/ and manifests/ci.yaml, and judged by their structure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotforge.base.files import write_atomic
from aotforge.base.yaml_reader import parse_yaml
from aotforge.errors import ManifestError, ShardError, suggest
from aotforge.pipeline.ci_jobs.ci_manifest import CiManifest, load_ci_manifest
from aotforge.pipeline.ci_jobs.jobs import PARTS

SOURCES, WRITTEN = Path("ci"), Path(".github", "workflows")
_PLACE = re.compile(r"<<([a-z ]+)>>")
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_NEEDED = re.compile(r"(?<![\w.])needs\.([\w-]+)\.(outputs\.([\w-]+)|result)")
_STEP = re.compile(r"(?<![\w.])steps\.([\w-]+)\.")
_MATRIX = re.compile(r"(?<![\w.])matrix\.([\w-]+)")
_PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A workflow that is not what its source makes: changed, missing, or without a source."""

    path: Path
    what: str


def generate(root: Path) -> tuple[Path, ...]:
    """Write every workflow that is not as it must be; returns those. Raises ManifestError, ShardError, OutputError."""
    wanted = workflows(root)
    changed = []
    for drift in drifts(root, wanted):
        if drift.path in wanted:
            write_atomic(root / drift.path, wanted[drift.path].encode())
        else:
            (root / drift.path).unlink()
        changed.append(drift.path)
    return tuple(changed)


def check_generated(root: Path) -> None:
    """Raises ShardError when a workflow is not what its source makes."""
    found = drifts(root, workflows(root))
    if found:
        raise ShardError(
            "workflows are not what their sources make:\n" + "\n".join(f"  {one.path}: {one.what}" for one in found),
            cause="a source or manifests/ci.yaml was changed, or a workflow by hand",
            hint="change ci/ and manifests/ci.yaml, then ./dev ci.generate, and commit what it writes",
        )  # fmt: skip


def workflows(root: Path) -> dict[Path, str]:
    """Text by path below `root`. Raises ManifestError for a placeholder that nothing stands for, or a workflow with a wrong structure."""
    manifest = load_ci_manifest(root / "manifests")
    found = {}
    for source in sorted((root / SOURCES).glob("*.yml")):
        text = write_workflow(source.read_text(encoding="utf-8"), manifest, source)
        wrong = complaints(text)
        if wrong:
            raise ManifestError(
                f"{source}: {wrong[0]}" + (f" (and {len(wrong) - 1} more)" if wrong[1:] else "")
            )
        found[WRITTEN / source.name] = text
    return found


def drifts(root: Path, wanted: Mapping[Path, str]) -> tuple[Drift, ...]:
    """What differs between the workflows that are there and `wanted`."""
    there = {path.relative_to(root) for path in (root / WRITTEN).glob("*.y*ml")}
    found = [Drift(path=path, what="has no source") for path in sorted(there - set(wanted))]
    for path, text in wanted.items():
        if path not in there:
            found.append(Drift(path=path, what="is missing"))
        elif (root / path).read_bytes() != text.encode():
            found.append(Drift(path=path, what="is not what its source makes"))
    return tuple(found)


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
            raise ManifestError(f"{place}: nothing stands for <<{found[1]}>>", hint=suggest(found[1], values))
        return values[found[1]]

    lines = source.splitlines()
    while lines and (lines[0].startswith("#") or not lines[0]):  # the source's own introduction
        lines.pop(0)
    head = [f"# Written by `./dev ci.generate` from ci/{place.name} and manifests/ci.yaml: change those.", ""]
    return _PLACE.sub(value, "\n".join([*head, *lines]) + "\n")


def complaints(text: str) -> list[str]:
    """What is wrong with a workflow: references to jobs, outputs and steps that are not there, actions that are not pinned, more
    permissions than reading, secrets, jobs without a time limit, expressions in scripts, a required job that does not need all others.
    """
    try:
        tree = parse_yaml(text, Path("workflow")).value()
        jobs: Mapping[str, Mapping[str, Any]] = tree["jobs"]
        found = list(_whole(text, tree))
        for name, job in jobs.items():
            found += [f"job {name}: {said}" for said in (*_references(name, job, jobs), *_rules(job))]
        return found + list(_required(jobs))
    except (ManifestError, KeyError, TypeError, AttributeError) as error:
        return [f"no workflow: {type(error).__name__}: {error}"]


def _whole(text: str, tree: Mapping[Any, Any]) -> Iterator[str]:
    if tree.get("permissions") != {"contents": "read"}:
        yield "permissions are not just contents: read"
    if "group" not in tree.get("concurrency", {}):
        yield "no concurrency group"
    # YAML 1.2: `on` is a string
    if "pull_request_target" in tree["on"] or "secrets." in text:
        yield "pull requests could reach secrets"
    for line in text.splitlines():
        if re.search(r"^\s*(- )?uses:", line) and not _PINNED.search(line):
            yield f"not pinned to a commit with its version: {line.strip()}"


def _references(name: str, job: Mapping[str, Any], jobs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    needs = job.get("needs", [])
    for need in needs:
        if need not in jobs or need == name:
            yield f"needs {need}, which is no other job"
    steps = {step["id"] for step in job["steps"] if "id" in step}
    for expression in _expressions(job):
        for wanted, what, output in _NEEDED.findall(expression):
            if wanted not in needs:
                yield f"uses needs.{wanted}, which it does not need"
            elif what != "result" and output not in jobs[wanted].get("outputs", {}):
                yield f"uses needs.{wanted}.outputs.{output}, which that job does not give"
        for step in _STEP.findall(expression):
            if step not in steps:
                yield f"uses steps.{step}, which it does not have"
        for entry in _MATRIX.findall(expression):
            if entry not in job.get("strategy", {}).get("matrix", {}):
                yield f"uses matrix.{entry}, which it does not have"
    if _cyclic(name, jobs):
        yield "needs itself, by way of others"


def _cyclic(name: str, jobs: Mapping[str, Mapping[str, Any]]) -> bool:
    seen: set[str] = set()
    waiting = list(jobs[name].get("needs", []))
    while waiting:
        one = waiting.pop()
        if one == name:
            return True
        if one in jobs and one not in seen:
            seen.add(one)
            waiting += jobs[one].get("needs", [])
    return False


def _rules(job: Mapping[str, Any]) -> Iterator[str]:
    if "timeout-minutes" not in job:
        yield "no time limit"
    if "permissions" in job:
        yield "permissions of its own"
    for step in job["steps"]:
        if "${{" in step.get("run", ""):
            yield "an expression in a script: pass the value through env"
        if (
            "checkout" in step.get("uses", "")
            and step.get("with", {}).get("persist-credentials") is not False
        ):
            yield "a checkout that keeps its credentials"


def _required(jobs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    required = jobs.get("required")
    if required is None:
        yield "no job named required"
        return
    if set(required.get("needs", [])) != set(jobs) - {"required"}:
        yield "job required: does not need every other job"
    if required.get("if") != "always()":
        yield "job required: would be skipped, and so pass, after a failure"


def _expressions(node: object) -> Iterator[str]:
    """Every expression below a job, its own `if` included."""
    if isinstance(node, Mapping):
        if isinstance(node.get("if"), str):
            yield node["if"]
        for value in node.values():
            yield from _expressions(value)
    elif isinstance(node, Sequence) and not isinstance(node, str):
        for value in node:
            yield from _expressions(value)
    elif isinstance(node, str):
        yield from _EXPRESSION.findall(node)
