"""`./dev hardware.check` on virtual HIP: planted wrong, faulting and hanging images are named, and the
check finishes."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from aotforge.base.architectures import Profile
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.model import KernelImage
from aotforge.compile.pool import WorkerLimits
from aotforge.deliver.hardware.check import CheckRequest, check_release
from aotforge.deliver.hardware.device import choose_device
from aotforge.deliver.hardware.report import write_report
from aotforge.deliver.install.install_release import fetch_pack
from aotforge.errors import InstallError, VerifyError
from aotforge.formats.sums import SUMS
from aotforge.plan.model import Plan
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.trust import trusted_index
from aotforge.publish.upload import publish_release
from aotforge.release.release import Release
from aotforge.verify.device.messages import CheckImage, DeviceResult, ShownDevice
from aotforge.verify.device.watchdog import Limits, check_on_device
from aotforge.verify.verdict import ImageTask
from aotforge.verify.verify_plan import image_tasks
from tests.e2e.checkouts import invoke
from tests.integration.release.real import CACHE
from tests.integration.verify.test_verify import faulty, scaled
from tests.integration.verify.test_verify_release import released
from tests.support.families import PROJECT, architectures, plan_of
from tests.support.publishing import NOW, make_keys
from vgpu.hip.build_hip import VirtualHip, build_virtual_hip, environment

pytestmark = pytest.mark.compiler
MI100 = ShownDevice(
    vendor="amd",
    number=0,
    name="AMD Instinct MI100",
    arch="gfx908",
    version="HIP 7.0.0",
    emulator="virtual HIP",
)
Variables = Callable[..., dict[str, str]]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A root with `add` of fp32 and fp16 alone, its plan and images, and the library whose device is a
    virtual gfx908."""

    root: Path
    plan: Plan
    images: Mapping[str, KernelImage]
    hip: VirtualHip

    def planted(self, folder: Path, *changes: Callable[[str], str]) -> tuple[Path, list[str]]:
        """A release whose first images have these changes, and their labels."""
        jobs = self.plan.jobs[: len(changes)]
        wrong = {job.key: faulty(self.images[job.key], one) for job, one in zip(jobs, changes, strict=True)}
        return released(folder, self.plan, {**self.images, **wrong}), [job.label for job in jobs]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    root = tmp_path_factory.mktemp("owner")
    shutil.copytree(PROJECT / "kernels" / "add", root / "kernels" / "add")
    (root / "manifests").symlink_to(PROJECT / "manifests")
    some = Profile(description="two types", complete=False, keep={"dtype": ("fp32", "fp16")})
    plan = plan_of(root / "kernels", own=some)
    with Cache(CACHE) as cache:
        made = compile_plan(
            plan,
            kernels_root=root / "kernels",
            architectures=architectures(),
            cache=cache,
            jobs=2,
            limits=WorkerLimits(),
        )
    return Machine(root=root, plan=plan, images=dict(made.items()), hip=build_virtual_hip(CACHE))


@pytest.fixture
def play(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], dict[str, str]]:
    """Sets and gives the variables of a virtual device that has these texts."""

    def start(texts: Path) -> dict[str, str]:
        variables = environment(machine.hip, devices=["gfx908"], texts=[texts], cache=CACHE)
        # without a limit of instructions, as hardware: an endless loop does not end
        variables["AOTFORGE_VIRTUAL"] += f",log=off,limit={2**62}"
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return variables

    return start


def texts_of(release: Path) -> Path:
    (found,) = release.glob("*-asm-*.tar.gz")
    return found


def wild(asm: str) -> str:
    """Before the first store a word is read from an address that no allocation has."""
    found = re.search(r"\t(?:global|buffer|flat)_store", asm)
    assert found
    read = "\ts_mov_b64 s[4:5], 0\n\ts_load_dword s4, s[4:5], 0x10\n\ts_waitcnt lgkmcnt(0)\n"
    return asm.replace(found[0], read + found[0], 1)


def endless(asm: str) -> str:
    """A branch to itself before the end."""
    head, _, tail = asm.rpartition("\ts_endpgm")
    return f"{head}.Lplanted:\n\ts_branch .Lplanted\n\ts_endpgm{tail}"


def test_a_planted_wrong_image_and_a_planted_fault_are_named_and_the_others_pass(
    machine: Machine, play: Callable[[Path], dict[str, str]], tmp_path: Path
) -> None:
    folder, (wrong, faults) = machine.planted(tmp_path, scaled, wild)
    play(texts_of(folder))
    request = CheckRequest(root=machine.root, cache=CACHE, date="2026-11-22", repeat=2, shape={})
    device = choose_device(machine.root)
    assert device == MI100
    seen: list[DeviceResult] = []
    sums = hashlib.sha256((folder / SUMS).read_bytes()).hexdigest()

    def result(one: DeviceResult, done: int, total: int) -> None:
        seen.append(one)
        (folder / SUMS).write_text("")  # by who owns the folder: the report names what was read

    report = check_release(request, folder, device, on_stage=lambda text: None, on_result=result)
    assert report.sums == sums
    by_label = {image.label: image for image in report.images}
    assert [one.label for one in seen] == list(by_label) == [job.label for job in machine.plan.jobs]
    assert by_label[wrong].state == "failed" and "out is wrong in" in by_label[wrong].failure
    assert by_label[faults].state == "fault" and "hipErrorIllegalAddress" in by_label[faults].failure
    assert "1 elements, aligned" in by_label[faults].failure  # the case
    others = [image for image in report.images if image.label not in {wrong, faults}]
    assert len(others) == 2 and not report.ended
    for image in others:  # additions have one right result, and the device is the same emulator
        assert image.state == "passed" and image.exact and image.same == image.elements > 1000
    # both images of fp16 are right, of which one serves the timed call
    assert [(time.operator, time.functional, time.torch) for time in report.times] == [
        ("add", "dtype=fp16", None)
    ]
    assert report.times[0].milliseconds > 0
    written = write_report(report, tmp_path / "out", key=None)
    page = written.html.read_text()
    with pytest.raises(VerifyError) as caught:
        written.require_passed()
    for label in (wrong, faults):
        assert label in page and label in str(caught.value) and label in written.json.read_text()
    assert "virtual HIP played this GPU" in page and "<script" not in page


def check_image(task: ImageTask, kernels: Path, *, repeat: int) -> CheckImage:
    return CheckImage(
        task=task, device=MI100, library=None, kernels_root=kernels, cache=CACHE,
        not_compared="" if repeat else "not requested",
        shape={}, repeat=repeat,
    )  # fmt: skip


def test_an_endless_image_is_ended_and_named(
    machine: Machine, play: Callable[[Path], dict[str, str]], tmp_path: Path
) -> None:
    job = machine.plan.jobs[0]
    image = faulty(machine.images[job.key], endless)
    play(tmp_path)
    (tmp_path / f"{image.digest}.s").write_text(image.asm)
    only = replace(machine.plan, jobs=(job,))
    (task,) = image_tasks(only, {job.key: image}, machine.root / "kernels")
    request = check_image(task, machine.root / "kernels", repeat=2)
    # its first launch never ends, however slow this machine is
    result, free = check_on_device(request, Limits(launch=0.5))
    assert (result.outcome, result.label, free) == ("hang", job.label, True)
    assert re.search(r"elements, aligned: no end after 0.5 s", result.failure)


@pytest.mark.slow
def test_the_command_finishes_with_three_planted_faults_and_its_report_is_refused_as_one_of_hardware(
    machine: Machine, play: Callable[[Path], dict[str, str]], tmp_path: Path
) -> None:
    folder, labels = machine.planted(tmp_path, scaled, wild, endless)
    variables = play(texts_of(folder))
    key = tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True, capture_output=True
    )
    key.chmod(0o600)
    words = f"hardware.check --release {folder} --seconds 20 --output {tmp_path} --repeat 2 --key {key}"
    done = invoke(PROJECT, *words.split(), "--only", "add.add", "--json", env=variables, check=False)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    states = {image["label"]: image["outcome"] for image in found["images"]}
    assert [states[label] for label in labels] == ["failed", "fault", "hang"]
    assert sorted(states.values()).count("passed") == len(states) - 3
    assert all(label in found["error"]["what"] for label in labels)
    public = tmp_path / "key.pub"
    subprocess.run(
        ["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True, capture_output=True
    )
    refused = invoke(PROJECT, "hardware.import", found["files"]["json"], "--key", str(public), check=False)
    assert refused.returncode == 4 and "is of virtual HIP, not of hardware" in refused.stderr


def test_an_aborted_process_is_a_fault_of_its_image(machine: Machine, tmp_path: Path) -> None:
    family = tmp_path / "kernels" / "add"
    shutil.copytree(machine.root / "kernels" / "add", family)
    (family / "cases.py").write_text(
        "import os\n\nprint('Memory access fault by GPU node-1', flush=True)\nos.abort()\n"
    )
    job = machine.plan.jobs[0]
    (task,) = image_tasks(
        replace(machine.plan, jobs=(job,)), {job.key: machine.images[job.key]}, machine.root / "kernels"
    )
    result, free = check_on_device(check_image(task, family.parent, repeat=0), Limits())
    assert (result.outcome, free) == ("fault", True)
    assert result.failure == "the process died of SIGABRT: Memory access fault by GPU node-1"


def test_a_published_release_is_downloaded_for_one_arch_and_has_the_same_images(
    machine: Machine, tmp_path: Path
) -> None:
    folder, _ = machine.planted(tmp_path)
    keys = make_keys(tmp_path / "keys")
    store = DirectoryStore(tmp_path / "store")
    publish_release(folder, store, keys, now=NOW, allow_development=True)
    index = trusted_index(store, keys.roots[0], tmp_path / "trust").index
    fetch = partial(
        fetch_pack,
        store,
        index,
        version=None,
        arch="gfx908",
        downloads=tmp_path / "d",
        folder=tmp_path / "got",
    )
    got, _ = fetch(pack="amd-gfx908")
    assert len(list(got.iterdir())) == 4 < len(list(folder.iterdir()))
    assert Release.open(got).packs(("amd-gfx908",)) == Release.open(folder).packs()
    with pytest.raises(InstallError, match=r"has no file .*-images-amd-gfx90a\.tar\.gz"):
        fetch(pack="amd-gfx90a")
