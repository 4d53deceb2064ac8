"""Images of a release are executed from its own archives; a missing or altered archive is named."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.compile.model import KernelImage
from aotforge.errors import (
    AotforgeError,
    PackError,
    ReleaseError,
    RulesError,
    UnsupportedError,
    VerifyError,
)
from aotforge.formats.archive import Member, write_tar_gz
from aotforge.pack.reader import open_files
from aotforge.pack.writer import write_pack
from aotforge.pipeline.display import BuildDisplay
from aotforge.pipeline.requests import VerifyRequest
from aotforge.pipeline.verify_release import verify, verify_release
from aotforge.plan.checkout import Checkout
from aotforge.plan.families import load_families
from aotforge.plan.model import Plan, PlannedFunctional, PlannedKernel, Predicate, ServedGate
from aotforge.release.assemble import assemble_release
from aotforge.release.model import PackInput, ReleaseManifest
from aotforge.release.release import Release
from aotforge.release.release_tasks import check_dispatch
from aotforge.rules import Value
from aotforge.verify.verdict import Verdict
from aotforge.verify.verify_plan import verify_images
from tests.integration.release.real import CACHE
from tests.integration.release.standin import LICENCE, MANIFEST, prefix, records
from tests.integration.verify.test_verify import faulty, scaled
from tests.support.families import PROJECT, plan_of
from tests.support.verified import compiled_images
from vgpu.code_object import read_elf

pytestmark = pytest.mark.compiler
Built = tuple[Path, Plan, dict[str, KernelImage]]


@pytest.fixture(scope="module")
def add(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A kernels root with `add` alone, its plan and its images."""
    root = tmp_path_factory.mktemp("add") / "kernels"
    shutil.copytree(PROJECT / "kernels" / "add", root / "add")
    for folder in ("manifests", "requirements"):
        shutil.copytree(PROJECT / folder, root.parent / folder)
    plan = plan_of(root)
    return root, plan, compiled_images(plan, root)


def released(
    folder: Path, plan: Plan, images: dict[str, KernelImage], manifest: ReleaseManifest = MANIFEST
) -> Path:
    loaded = [images[job.key] for job in plan.jobs]
    packed = PackInput(
        pack=write_pack(plan, loaded, release=manifest.name),
        assembly={image.digest: image.asm for image in loaded},
        records=records(plan, loaded),
    )
    return assemble_release(
        manifest, [packed], prefix(folder / "prefix"), output=folder / "dist", licence=LICENCE, epoch=0,
            inputs="1"
    ).folder  # fmt: skip


@pytest.fixture
def release(add: Built, tmp_path: Path) -> Path:
    return released(tmp_path, add[1], add[2])


def refuse(folder: Path, root: Path, error: type[AotforgeError], match: str) -> None:
    with pytest.raises(error, match=match):
        verify_release(folder, checkout=Checkout(root.parent), cache=CACHE, jobs=1)


def archive(folder: Path, kind: str) -> Path:
    (found,) = folder.glob(f"*-{kind}-*.tar.gz")
    return found


def test_the_images_of_a_release_have_the_verdicts_of_its_plan(
    add: Built,
    release: Path,
    tmp_path: Path,
) -> None:
    root, plan, images = add
    cache = tmp_path / "cache"
    # without files that other tests are writing
    shutil.copytree(CACHE / "emulator-1", cache / "emulator-1", ignore=shutil.ignore_patterns(".*"))
    report = verify_release(release, checkout=Checkout(root.parent), cache=cache, jobs=1)
    report.require_passed()
    assert (report.pack, report.archs) == (plan.pack, ("gfx908",))
    assert {v.label for v in report.verdicts} == {job.label for job in plan.jobs}
    assert not any(v.cached for v in report.verdicts)
    from_plan = verify_images(plan, images, kernels_root=root, cache=cache, jobs=1)
    # a verdict is about an image and its dispatch: a second verification of both finds it in the cache
    assert all(v.cached for v in from_plan.verdicts)

    def about_the_image(verdict: Verdict) -> Verdict:
        return replace(verdict, key="", cached=False)

    by_label = {v.label: about_the_image(v) for v in report.verdicts}
    assert by_label == {v.label: about_the_image(v) for v in from_plan.verdicts}


def test_a_wrong_image_in_a_release_is_found_whatever_the_cache_has(add: Built, tmp_path: Path) -> None:
    root, plan, images = add
    bad = plan.jobs[0]
    folder = released(tmp_path, plan, {**images, bad.key: faulty(images[bad.key], scaled)})
    report = verify_release(folder, checkout=Checkout(root.parent), cache=CACHE, jobs=1)
    assert [v.label for v in report.verdicts if v.outcome != "passed"] == [bad.label]
    with pytest.raises(VerifyError, match=bad.label):
        report.require_passed()


def test_an_image_of_which_the_emulator_reads_all_but_one_bit_is_refused(add: Built, tmp_path: Path) -> None:
    """A GPU would stop at infinite results: a bit that neither the virtual GPU nor the image's text has."""
    root, plan, images = add
    altered = {}
    for key, image in images.items():
        data = bytearray(image.binary)
        data[read_elf(image.binary).section(".rodata").offset + 55] ^= 8
        altered[key] = replace(image, binary=bytes(data), digest=hashlib.sha256(data).hexdigest())
    with pytest.raises(ReleaseError, match="it is another file"):
        verify_release(released(tmp_path, plan, altered), checkout=Checkout(root.parent), cache=CACHE, jobs=1)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def resum(path: Path) -> None:
    """As an attacker, or a mirror, would: the archive is damaged and the sums agree with it."""
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    cut(path)
    sums = path.parent / "SHA256SUMS"
    sums.write_text(sums.read_text().replace(before, hashlib.sha256(path.read_bytes()).hexdigest()))


@pytest.mark.parametrize("kind", ["images", "asm"])
@pytest.mark.parametrize(
    ("damage", "expected"),
    [(Path.unlink, "No such file"), (cut, "is not the file that SHA256SUMS names"), (resum, "damaged")],
)
def test_an_archive_that_is_missing_or_altered_is_named(
    release: Path, kind: str, damage: Callable[[Path], None], expected: str
) -> None:
    path = archive(release, kind)
    damage(path)
    with pytest.raises(ReleaseError) as caught:
        Release.open(release).packs()
    assert path.name in caught.value.what
    assert expected in str(caught.value)
    assert caught.value.hint


def test_archives_of_different_builds_are_not_mixed(release: Path) -> None:
    path = archive(release, "asm")
    with tarfile.open(path) as tar:
        members = {
            info.name: Member(content=stream.read())
            for info in tar
            if info.isreg() and (stream := tar.extractfile(info))
        }
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    text = next(name for name in members if name.endswith(".s"))
    del members[text]
    write_tar_gz(path, members, epoch=0)
    sums = release / "SHA256SUMS"
    sums.write_text(sums.read_text().replace(before, hashlib.sha256(path.read_bytes()).hexdigest()))
    with pytest.raises(ReleaseError, match=Path(text).stem):
        verify_release(release, checkout=Checkout(PROJECT), cache=CACHE)


def rewritten(release: Path, change: Callable[[str], str], *, sums: bool) -> None:
    """Another MANIFEST.json, with or without the sum of it."""
    path = release / "MANIFEST.json"
    before = path.read_bytes()
    path.write_text(change(before.decode()))
    assert path.read_bytes() != before
    if sums:
        listed = release / "SHA256SUMS"
        old, new = (hashlib.sha256(data).hexdigest() for data in (before, path.read_bytes()))
        listed.write_text(listed.read_text().replace(old, new))


def test_a_manifest_that_is_not_the_releases_own_is_refused(
    add: Built, release: Path, tmp_path: Path
) -> None:
    root, _, images = add
    one = next(iter(images.values())).digest
    text = (release / "MANIFEST.json").read_text()
    for change, sums, expected in (
        (lambda text: text + "\n", False, "is not the file that SHA256SUMS names"),
        (lambda text: text[:-20], True, "not of this format"),
        (lambda text: text.replace(one, "0" * 64), True, "hold different images"),
    ):
        (release / "MANIFEST.json").write_text(text)
        with_sums = Path(shutil.copytree(release, tmp_path / expected.replace(" ", "-")))
        rewritten(with_sums, change, sums=sums)
        with pytest.raises(ReleaseError, match=expected):
            verify_release(with_sums, checkout=Checkout(root.parent), cache=CACHE, jobs=1)
    (release / "MANIFEST.json").unlink()
    with pytest.raises(ReleaseError, match=r"MANIFEST\.json: No such file"):
        Release.open(release).packs()


def test_another_checkout_and_another_arch_are_refused(release: Path, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="no images for gfx942"):
        verify_release(release, checkout=Checkout(PROJECT), cache=CACHE, archs=["gfx942"])
    # nor is it left out in silence beside one that is there
    with pytest.raises(ReleaseError, match="no images for gfx942"):
        verify_release(release, checkout=Checkout(PROJECT), cache=CACHE, archs=["gfx908", "gfx942"])
    (tmp_path / "kernels").mkdir()
    shutil.copytree(PROJECT / "kernels" / "flash", tmp_path / "kernels" / "flash")
    with pytest.raises(RulesError, match=r"add\.add"):
        verify_release(release, checkout=Checkout(tmp_path), cache=CACHE)


@pytest.mark.parametrize(("profile", "named"), [(None, False), ("quick", True)])
def test_contradicting_requests_are_refused(tmp_path: Path, profile: str | None, named: bool) -> None:
    request = VerifyRequest(
        root=PROJECT, archs=(), profile=profile, release=tmp_path if named else None, cache=CACHE, jobs=1
    )
    with pytest.raises(UnsupportedError) as caught:
        verify(request, observer=BuildDisplay(quiet=True))
    assert "--release" in str(caught.value)


# the verifier takes these values from the image: no execution shows them
def other_threads(image: KernelImage) -> KernelImage:
    return replace(image, resources=replace(image.resources, threads=128))


def other_symbol(image: KernelImage) -> KernelImage:
    return replace(image, symbol="another")


@pytest.mark.parametrize(
    ("change", "expected"), [(other_threads, "threads = 128"), (other_symbol, "symbol = another")]
)
def test_images_that_the_pack_launches_as_they_were_not_compiled_are_refused(
    add: Built, tmp_path: Path, change: Callable[[KernelImage], KernelImage], expected: str
) -> None:  # fmt: skip
    root, plan, images = add
    folder = released(tmp_path, plan, {key: change(image) for key, image in images.items()})
    refuse(folder, root, ReleaseError, expected)


def test_kernels_of_an_operator_in_other_steps_are_refused(
    add: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verdicts are of images: each is right, and the operator's results are not."""
    root, plan, images = add
    folder = released(tmp_path, plan, images)
    loaded = load_families(root)
    (one,) = loaded
    (kernel,) = one.family.kernels
    for kernels in (
        (kernel, replace(kernel, name="prepare", step=1)),
        (replace(kernel, name="other"),),
    ):
        others = (replace(one, family=replace(one.family, kernels=kernels)),)
        monkeypatch.setattr("aotforge.plan.checkout.load_families", lambda _, found=others: found)
        with pytest.raises(ReleaseError, match="are not those that this checkout plans"):
            verify_release(folder, checkout=Checkout(root.parent), cache=CACHE, jobs=1)


def test_an_image_for_two_archs_is_refused(add: Built, tmp_path: Path) -> None:
    """It would be executed as one of them, and both would have the verdict."""
    root, plan, images = add
    (kernel,) = plan.kernels
    other = tuple(replace(functional, arch="gfx906") for functional in kernel.functionals)
    both = replace(
        plan,
        archs=("gfx906", *plan.archs),
        kernels=(replace(kernel, functionals=(*other, *kernel.functionals)),),
    )
    folder = released(tmp_path, both, images)
    refuse(folder, root, ReleaseError, "for gfx906 and gfx908")


def test_arguments_that_the_pack_lays_out_otherwise_are_refused(add: Built, tmp_path: Path) -> None:
    """The virtual GPU packs arguments as the image wants them, the library by the types in the dispatch
    data."""
    root, plan, images = add
    (kernel,) = plan.kernels
    shorter = tuple(replace(p, type="i32") if p.type == "i64" else p for p in kernel.parameters)
    assert shorter != kernel.parameters
    altered = replace(plan, kernels=(replace(kernel, parameters=shorter),))
    lying = {
        key: replace(
            image, arguments=tuple(replace(a, size=4) if a.kind == "by_value" else a for a in image.arguments)
        )
        for key, image in images.items()
    }
    folder = released(tmp_path, altered, lying)
    refuse(folder, root, PackError, "the plan passes 4 bytes")


def hidden_choice(kernel: PlannedKernel) -> PlannedKernel:
    """Calls larger than those of any case get one workgroup."""

    def before(functional: PlannedFunctional) -> PlannedFunctional:
        large = Predicate(values=("n",), kind="range", low=10_000_000, high=2**62)
        first = replace(functional.choices[-1], predicates=(large,), grid=((),))
        return replace(functional, choices=(first, *functional.choices))

    return replace(kernel, functionals=tuple(map(before, kernel.functionals)))


def with_kernel(change: Callable[[PlannedKernel], PlannedKernel]) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, kernels=tuple(map(change, plan.kernels)))


def with_a_value(plan: Plan) -> Plan:
    """Another interface, which the library refuses."""
    (operator,) = plan.operators
    return replace(
        plan, operators=(replace(operator, values=(*operator.values, Value(name="z", type="i32"))),)
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (with_kernel(hidden_choice), "add.add for gfx908"),
        (with_kernel(lambda kernel: replace(kernel, ladder=True)), "ladder of add.add"),
        (lambda plan: replace(plan, gates=(ServedGate(gate="0.11", arch="gfx908"),)), "gates"),
        (with_a_value, "operator add"),
        (lambda plan: replace(plan, profile="another"), "unknown profile another"),
    ],
)
def test_dispatch_data_other_than_the_rules_are_refused(
    add: Built, tmp_path: Path, change: Callable[[Plan], Plan], expected: str
) -> None:  # fmt: skip
    """Each image passes the cases that are dispatched to it, and calls that are no case get wrong results."""
    root, plan, images = add
    folder = released(tmp_path, change(plan), images)
    refuse(folder, root, ReleaseError, expected)


def test_images_that_print_are_refused(add: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, plan, images = add
    monkeypatch.setattr("aotforge.targets.amd.backend.AmdBackend.makes_host_calls", lambda *_: True)
    refuse(released(tmp_path, plan, images), root, PackError, "add.add:.* prints or asserts")


@pytest.mark.parametrize("path", ["source", "complete", "only"])
def test_a_release_of_other_sources_or_of_some_kernels_is_verified(
    add: Built, tmp_path: Path, path: str
) -> None:
    root, plan, images = add
    changes: dict[str, Plan] = {
        "source": replace(plan, source_digest="0" * 64),
        "complete": replace(plan, complete=False),
        "only": replace(plan, complete=False, profile=f"{plan.profile}-only"),
    }
    (opened,) = (
        open_files(one.pack) for one in Release.open(released(tmp_path, changes[path], images)).packs()
    )
    check_dispatch(opened, Checkout(root.parent))
