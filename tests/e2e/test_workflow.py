"""`.github/workflows/build.yml`, run on a tag as far as this machine can: scripts, matrix, artifacts and
conditions. Other people's actions and `gh` have stand-ins."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.checkouts import ROOT, copy_checkout, environment, shrink_smoke

WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "build.yml").read_text())
SMALL = {"ARCHS": "gfx908,gfx1030", "PROFILE": "smoke", "EXECUTOR": "local"}


class Runner:
    """Jobs in order, each in a fresh copy of the checkout; `artifacts` is what a job leaves for others."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.artifacts, self.attested = folder, folder / "artifacts", list[Path]()
        (folder / "bin").mkdir()
        gh = folder / "bin" / "gh"
        gh.write_text(f'#!/bin/sh\nprintf "%s\\n" "$GH_REPO" "$TAG" "$@" >{folder}/uploaded\n')
        gh.chmod(0o755)
        self.values: dict[str, Any] = {
            "github.token": "token",
            "github.repository": "owner/name",
            "github.ref_name": "0.11.2b-r1",
        }

    def run(self, name: str) -> None:
        job = WORKFLOW["jobs"][name]
        if "if" in job:
            assert job["if"] == "github.event_name == 'workflow_dispatch' && github.ref_type == 'tag'"
        for row in self._rows(job):
            self.values.update({f"matrix.{column}": value for column, value in row.items()})
            checkout = self.folder / name / str(row.get("name", "job"))
            checkout.mkdir(parents=True)
            outputs = [self._step(step, checkout) for step in job["steps"]]
            for output, word in job.get("outputs", {}).items():
                step = re.fullmatch(r"\$\{\{ steps\.(\w+)\.outputs\.(\w+) \}\}", word)
                (index,) = (i for i, s in enumerate(job["steps"]) if step and s.get("id") == step[1])
                self.values[f"needs.{name}.outputs.{output}"] = outputs[index][output]

    def _rows(self, job: Mapping[str, Any]) -> list[dict[str, Any]]:
        if "strategy" not in job:
            return [{}]
        word = job["strategy"]["matrix"]["include"]
        return json.loads(self.values[word.removeprefix("${{ fromJSON(").removesuffix(") }}")])  # type: ignore[no-any-return]

    def _text(self, text: str) -> str:
        return re.sub(r"\$\{\{ *([\w.]+) *\}\}", lambda match: str(self.values[match[1]]), text)

    def _step(self, step: Mapping[str, Any], checkout: Path) -> dict[str, str]:
        action, given = step.get("uses", "").partition("@")[0], step.get("with", {})
        match action.partition("/")[2]:
            case "checkout":
                copy_checkout(checkout)
                shrink_smoke(checkout)
            case "upload-artifact":
                self._upload(self._text(given["name"]), given["path"].split(), checkout)
            case "download-artifact":
                self._download(given, checkout)
            case "attest-build-provenance":
                patterns = given["subject-path"].split()
                self.attested = sorted(path for pattern in patterns for path in checkout.glob(pattern))
            case "":
                return self._script(step, checkout)
            case other:
                assert other == "cache", other
        return {}

    def _script(self, step: Mapping[str, Any], checkout: Path) -> dict[str, str]:
        assert "${{" not in step["run"]
        output = self.folder / "output"
        output.write_text("")
        env = environment(self.folder, {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": os.devnull})
        env |= WORKFLOW["env"] | SMALL
        env |= {name: self._text(text) for name, text in step.get("env", {}).items()}
        env["PATH"] = f"{self.folder / 'bin'}:{env['PATH']}"
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{step['run']}\n{done.stdout}\n{done.stderr}"
        return dict(line.split("=", 1) for line in output.read_text().splitlines())

    def _upload(self, name: str, patterns: list[str], checkout: Path) -> None:
        paths = [path for pattern in patterns for path in checkout.glob(pattern)]
        assert paths, f"no file of artifact {name}"
        top = checkout.joinpath(*Path(os.path.commonpath(patterns)).parts)
        for path in paths:
            target = self.artifacts / name / path.relative_to(top)
            if path.is_dir():
                shutil.copytree(path, target, dirs_exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)

    def _download(self, given: Mapping[str, Any], checkout: Path) -> None:
        for artifact in self._matching(given["pattern"]):
            target = checkout / given["path"]
            if not given.get("merge-multiple"):
                target /= artifact.name
            shutil.copytree(artifact, target, dirs_exist_ok=True)

    def _matching(self, pattern: str) -> Iterator[Path]:
        braces = re.fullmatch(r"\{(.*)\}", pattern)
        for word in braces[1].split(",") if braces else [pattern]:
            yield from sorted(self.artifacts.glob(word))


@pytest.mark.slow  # two builds, and the library for Windows
@pytest.mark.compiler
@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_a_tag_gets_the_files_of_every_job(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    for name in WORKFLOW["jobs"]:
        runner.run(name)
    repository, tag, *words = (tmp_path / "uploaded").read_text().splitlines()
    uploaded = [tmp_path / "publish" / "job" / word for word in words if word.startswith("ci-out/")]
    assert (repository, tag) == ("owner/name", "0.11.2b-r1") and words[:3] == ["release", "create", tag]
    assert sorted(uploaded) == runner.attested
    names = [path.name for path in uploaded]
    assert len(set(names)) == len(names)  # files of a release have no folders
    for part in ("-shared.tar.gz", "images-amd-gfx908", "images-amd-gfx1030", "win_amd64"):
        assert any(part in name for name in names), (part, names)
