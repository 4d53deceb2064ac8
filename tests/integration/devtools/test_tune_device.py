"""`./dev tune --device` on virtual HIP, whose events count instructions: planted slow, wrong and faulting
candidates, and a second call."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from aotforge.compile.cache import Cache
from aotforge.compile.cache_entry import KIND, Entry, decode, encode
from aotforge.devtools.cost.candidates import Candidate, CostRequest, find_candidates
from aotforge.devtools.tune import device_times, run_tune, search
from aotforge.devtools.tune.device_times import OnDevice, Timing
from aotforge.devtools.tune.run_tune import TuneRequest, tune
from aotforge.devtools.tune.tune_report import Search, write_found
from aotforge.errors import DeviceError, ReportError
from aotforge.library.build_linux import build_runtime
from aotforge.library.library_build import LibraryRequest
from aotforge.verify.device.watchdog import Limits
from tests.integration.deliver.hardware.test_check import endless, wild
from tests.integration.release.real import CACHE
from tests.integration.verify.test_verify import faulty
from tests.support.families import PROJECT
from vgpu.hip.build_hip import VirtualHip, build_virtual_hip, environment

pytestmark = pytest.mark.compiler
NOW = {"BLOCK": 2048, "num_warps": 4, "num_stages": 1}
NOW |= {"waves_per_eu": 0, "matrix_instr_nonkdim": 0, "kpack": 1}
SETTINGS = [
    {**NOW, **change} for change in ({"BLOCK": 1024}, {"num_warps": 2}, {"num_warps": 8}, {"num_stages": 2})
]
"""Other images than the rules' but the last, whose option changes nothing."""
QUICK = Timing(rounds=2, launches=1, least=1, milliseconds=0.0)


def request(cache: Path, **changes: Any) -> TuneRequest:
    one = TuneRequest(
        root=PROJECT,
        cache=cache,
        images=("add.add",),
        arch="gfx908",
        keys={"dtype": "fp16"},
        shapes=[{"n": "8192"}],
        seconds=3600.0,
    )
    return replace(one, **changes)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "candidates", lambda setting, target: SETTINGS)
    library = build_runtime(LibraryRequest(root=PROJECT, cache=CACHE))
    monkeypatch.setattr(run_tune, "build_runtime", lambda request: library)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the images of the rules' choice and of all settings."""
    folder = tmp_path_factory.mktemp("prepared") / "cache"
    folder.mkdir(mode=0o700)
    for one in candidates_of(folder).values():
        search.all_images(one, cost(folder))
    return folder


def cost(folder: Path, *settings: Mapping[str, int]) -> CostRequest:
    texts = tuple({name: str(value) for name, value in one.items()} for one in settings)
    return request(folder, settings=texts, restricted=True)


def candidates_of(folder: Path) -> dict[str, Candidate]:
    """By the names of settings: `_0` and so on, and `rules`."""
    (rules,) = find_candidates(cost(folder))
    others = find_candidates(cost(folder, *SETTINGS))
    return {"rules": rules} | {f"_{number}": one for number, one in enumerate(others)}


@pytest.fixture(scope="module")
def hip() -> VirtualHip:
    return build_virtual_hip(CACHE)


Play = Callable[..., Search]


@pytest.fixture
def play(hip: VirtualHip, monkeypatch: pytest.MonkeyPatch) -> Play:
    """A tune of the candidates in a folder on a virtual gfx908."""

    def run(folder: Path, *, devices: str = "gfx908", limits: Limits | None = None, **changes: Any) -> Search:
        variables = environment(hip, devices=[devices], texts=[texts(folder)], cache=CACHE)
        variables["AOTFORGE_VIRTUAL"] += f",clock=instructions,log=off,limit={2**62},threads=1"
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        device = OnDevice(driver=str(hip.library), timing=QUICK, limits=limits or Limits())
        wanted = request(folder, device=device, **changes)
        (report,) = tune(wanted).reports
        return report

    return run


def planted(prepared: Path, folder: Path, **changes: Callable[[str], str]) -> Path:
    """A copy of the cache in which images of candidates have other code."""
    shutil.copytree(prepared, folder)
    for name, change in changes.items():
        with Cache(folder) as cache:
            for key, image in search.all_images(candidates_of(folder)[name], cost(folder)).items():
                entry = cache.load(key)
                assert entry is not None
                made = faulty(replace(image, asm=entry.asm()), change)
                asm = zstandard.compress(made.asm.encode())
                summary = replace(
                    entry.summary, digest=made.digest, binary_size=len(made.binary), asm_size=len(asm)
                )
                cache.store(key, encode(Entry(summary=summary, binary=made.binary, asm_zstd=asm)))
    return folder


def texts(folder: Path) -> Path:
    """The assembly of a cache's images by digest, by which a virtual device finds it."""
    (asm := folder.with_name(f"{folder.name}-asm")).mkdir(exist_ok=True)
    for path in (folder / KIND).rglob("*"):
        if path.is_file() and len(path.name) == 64:
            entry = decode(path.read_bytes(), path.name)
            (asm / f"{entry.summary.digest}.s").write_text(entry.asm())
    return asm


def slow(asm: str) -> str:
    """A thousand turns of a loop before the end."""
    head, _, tail = asm.rpartition("\ts_endpgm")
    loop = "\ts_movk_i32 s0, 1000\n.Lslow:\n\ts_sub_u32 s0, s0, 1\n\ts_cmp_lg_u32 s0, 0\n"
    loop += "\ts_cbranch_scc1 .Lslow\n"
    return f"{head}{loop}\ts_endpgm{tail}"


def wrong_and_fast(asm: str) -> str:
    """It ends before its first store: nothing is faster."""
    store = re.search(r"\tbuffer_store", asm)
    assert store
    return asm.replace(store[0], f"\ts_endpgm\n{store[0]}", 1)


def ratios(report: Search) -> dict[str, float]:
    """By the setting's name in SETTINGS, `_0` and so on."""
    names = {tuple(one.values()): f"_{number}" for number, one in enumerate(SETTINGS)}
    return {names.get(tuple(one.values.values()), "rules"): ratio for ratio, one in report.ranked}


def test_the_right_and_fast_one_wins_over_planted_slow_wrong_and_faulting_ones(
    prepared: Path, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = planted(prepared, tmp_path / "planted", _0=wild, _1=wrong_and_fast, rules=slow)
    report = play(folder)
    found = ratios(report)
    # the third candidate is right, and faster than the rules' image, which was made slow
    assert next(iter(found)) in {"_2", "_3"} and found["rules"] == 1.0 and set(found) == {"_2", "_3", "rules"}
    assert found["_3"] < 0.5 and found["_2"] < 0.5
    refused = [one.estimates[0].refused for one in report.tried]
    assert refused[0].startswith("fault on the GPU:") and "hipErrorIllegalAddress" in refused[0]
    assert refused[1].startswith("failed on the GPU:") and "out is wrong in" in refused[1]
    assert report.timed is not None and report.timed.name == "AMD Instinct MI100"
    assert "2 are not right on the GPU" in "\n".join(report.lines())
    # what is known is not repeated: no process is started
    monkeypatch.setattr(device_times, "DeviceSession", None)
    again = play(folder)
    assert ratios(again) == found and again.known == 5
    with pytest.raises(ReportError, match="of virtual HIP, not of hardware"):
        write_found(report, tmp_path, date="2026-11-23", triton="3.9.0")


def test_images_as_they_are_have_the_same_shares_as_their_instructions(prepared: Path, play: Play) -> None:
    """Two shapes, each with times of its own; the option that changes nothing has the rules' own."""
    report = play(prepared, shapes=[{"n": "8192"}, {"n": "32768"}])
    found = ratios(report)
    assert found["_3"] == 1.0 and found["_2"] > found["rules"] > found["_1"]
    rules = report.rules.estimates
    assert rules[1].milliseconds / rules[0].milliseconds == pytest.approx(4, rel=0.05)


@pytest.mark.slow
def test_a_hanging_candidate_is_ended_and_the_others_are_timed(
    prepared: Path, play: Play, tmp_path: Path
) -> None:
    folder = planted(prepared, tmp_path / "planted", _1=endless)
    report = play(folder, limits=Limits(launch=20.0))
    refused = [one.estimates[0].refused for one in report.tried]
    assert refused[1].startswith("hang on the GPU:") and "no end after 20 s" in refused[1]
    assert set(ratios(report)) == {"_0", "_2", "_3", "rules"}


def test_without_a_gpu_of_the_arch_nothing_is_compiled(
    prepared: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tune, "search", None)
    with pytest.raises(DeviceError, match="no GPU of this machine fits: none is gfx908") as caught:
        play(prepared, devices="gfx90a")
    assert "(gfx90a)" in caught.value.cause and caught.value.exit_code == 3
