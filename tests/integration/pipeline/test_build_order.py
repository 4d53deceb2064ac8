"""A build refuses what it can before anything slow begins, and passes resources and verifiers on."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.errors import AotforgeError, OutputError, RulesError, VerifyError
from aotforge.pipeline.build_release import build
from aotforge.pipeline.display import BuildDisplay
from aotforge.pipeline.images import make_plans, pack_images, plans_verifier_digest, require_executors
from aotforge.pipeline.requests import BuildRequest
from aotforge.release.layout import resources_json
from tests.integration.release.standin import MANIFEST, ROOT
from tests.support.families import architectures, plan_of, write_many

RELEASE = MANIFEST.name


def refused(
    monkeypatch: pytest.MonkeyPatch, folder: Path, kind: type[AotforgeError], root: Path = ROOT
) -> AotforgeError:
    """The error of a build that got to neither the library nor the kernels."""

    def slow(*_: object, **__: object) -> None:
        raise AssertionError("something slow was begun")

    monkeypatch.setattr("aotforge.pipeline.build_release.build_runtime", slow)
    monkeypatch.setattr("aotforge.pipeline.images.compile_plan", slow)
    request = BuildRequest(
        root=root, archs=("gfx908",), profile="smoke", output=folder / "dist", cache=folder / "cache", jobs=1
    )
    with pytest.raises(kind) as caught:
        build(request, observer=BuildDisplay(quiet=True))
    return caught.value


@pytest.mark.parametrize("name", [f"aotriton-{RELEASE}-images-amd-gfx90a.tar.gz", "SHA256SUMS.asc"])
def test_a_release_that_would_be_deleted_is_seen_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kept = tmp_path / "dist" / RELEASE / name
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"kept")
    error = refused(monkeypatch, tmp_path, OutputError)
    assert ("amd-gfx90a" if "images" in name else name) in error.what
    assert "--output" in error.hint
    assert kept.read_bytes() == b"kept"


def test_another_interface_is_seen_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "checkout"
    for part in ("runtime/src", "kernels", "manifests", "requirements"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "LICENSE", root)
    definition = root / "runtime" / "src" / "operators.def"
    definition.write_text(definition.read_text().replace("X(op, i32, group)", "X(op, i64, group)"))
    error = refused(monkeypatch, tmp_path, RulesError, root)
    assert "operators.def" in error.what


@pytest.mark.compiler
def test_resources_come_from_the_compiled_images(tmp_path: Path) -> None:
    root = write_many(tmp_path / "k", 2)
    plan = plan_of(root)
    with Cache(tmp_path / "cache") as cache:
        images = compile_plan(plan, kernels_root=root, architectures=architectures(), cache=cache, jobs=1)
        made = pack_images(plan, images, MANIFEST, {})
        wanted = {image.digest: asdict(image.resources) for image in images.values()}
    rows = json.loads(resources_json(made.pack.name, made.records))["images"]
    assert sorted(label for row in rows for label in row["labels"]) == sorted(job.label for job in plan.jobs)
    for row in rows:
        assert {name: row[name] for name in wanted[row["digest"]]} == wanted[row["digest"]]
        assert row["registers"] > 0 and row["occupancy"] > 0


def test_an_arch_without_a_virtual_gpu_is_reported_before_anything_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vgpu.emulator.targets.emulated_targets", dict)
    request = BuildRequest(root=ROOT, archs=("gfx908",), profile="smoke", output=None, cache=tmp_path, jobs=1)
    with pytest.raises(VerifyError, match="images for gfx908 cannot be verified") as caught:
        require_executors(make_plans(request), request.cache)
    assert "--no-verify" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_a_family_in_a_folder_of_another_name_is_verified_by_that_folder(tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    for part in ("manifests", "requirements"):
        shutil.copytree(ROOT / part, root / part)
    shutil.copytree(ROOT / "kernels" / "add", root / "kernels" / "sums")
    request = BuildRequest(
        root=root, archs=("gfx908",), profile="smoke", output=None, cache=tmp_path / "cache", jobs=1
    )
    plans = make_plans(request)
    before = plans_verifier_digest(request.checkout, plans)
    assert plans_verifier_digest(request.checkout, plans) == before
    cases = root / "kernels" / "sums" / "cases.py"
    cases.write_text(cases.read_text() + "\n# changed\n")
    assert plans_verifier_digest(request.checkout, plans) != before
