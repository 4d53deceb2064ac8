"""Search of settings: order and limits of candidates, budget, what is known, ranking, and the file that keeps
the best."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tasks
from aotforge.base import source_groups
from aotforge.base.architectures import load_architectures
from aotforge.base.source_groups import ROOT, group_files
from aotforge.base.tuning import Found, load_tuning, tuning
from aotforge.cli.program import main as cli
from aotforge.devtools.cost.candidates import CostRequest, changed_setting
from aotforge.devtools.selection import choose, find_kernel
from aotforge.devtools.tune import search as tool
from aotforge.devtools.tune.search import candidates, present, search, space
from aotforge.devtools.tune.tune_report import Search, TimedOn, Tried, TunedCost, write_found
from aotforge.errors import ReportError, UnsupportedError
from aotforge.rules import Setting
from tests.support.families import PROJECT

SETTING = Setting(
    constants={"BLOCK_M": 64, "BLOCK_N": 16, "EXACT": True, "WIDTH": 64},
    num_warps=4,
    num_stages=1,
    waves_per_eu=2,
)


def target(arch: str) -> Any:
    return load_architectures().find(arch).target(arch)


def test_candidates_are_all_combinations_but_the_present_one_the_nearest_first() -> None:
    offered = space(SETTING, target("gfx908"))
    options = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack")
    assert set(offered) == {"BLOCK_M", "BLOCK_N", *options}
    assert (offered["BLOCK_M"], offered["BLOCK_N"]) == ((16, 32, 64, 128), (16, 32))
    now = present(SETTING, tuple(offered))
    found = candidates(SETTING, target("gfx908"))
    assert len(found) == 4 * 2 * 3 * 2 * 3 * 3 * 2 - 1 and now not in found
    changed = [sum(one[name] != now[name] for name in now) for one in found]
    assert changed == sorted(changed) and changed[0] == 1
    assert not {"matrix_instr_nonkdim", "kpack"} & set(space(SETTING, target("gfx1100")))
    assert "kpack" not in space(SETTING, target("gfx950"))
    nvidia = space(dataclasses.replace(SETTING, num_warps=2), target("sm_90"))
    assert set(nvidia) == {"BLOCK_M", "BLOCK_N", "num_warps", "num_stages"}
    assert nvidia["num_stages"] == (1, 2, 3, 4) and nvidia["num_warps"] == (2, 4, 8, 16)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Labels of the estimates that were made: few threads are quick, and one setting spills."""
    names: list[str] = []

    def estimated(call: Any, one: Any, *, spilled: bool = False) -> TunedCost:
        names.append(one.name)
        if "num_stages=2" in one.name:
            return TunedCost(scratch_bytes=64)
        return TunedCost(cycles=50.0 if "num_warps=2" in one.name else 100.0, registers=8, occupancy=4)

    monkeypatch.setattr(tool, "candidates", lambda setting, target: candidates(setting, target)[:12])
    monkeypatch.setattr(tool, "compile_together", lambda found, request: None)
    monkeypatch.setattr(tool, "estimated", estimated)
    return names


def request(cache: Path) -> CostRequest:
    keys, shape = {"dtype": "fp16"}, {"n": "4096"}
    return CostRequest(root=PROJECT, cache=cache, images=("add.add",), arch="gfx908", keys=keys, shape=shape)


def run(cache: Path, seconds: float) -> Search:
    return search(
        request(cache), (), tool.Estimates(), seconds=seconds, on_tried=lambda one, done, total: None
    )


def test_the_budget_ends_a_search_and_the_next_one_resumes_without_repeating(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(tmp_path, 0.0)
    assert len(first.tried) == 8 < first.offered and first.known == 0 and len(made) == 9
    again = run(tmp_path, 0.0)
    assert (again.known, len(made), again.tried) == (9, 9, first.tried)
    complete = run(tmp_path, 3600.0)
    assert len(complete.tried) == complete.offered and complete.known == 9
    assert len(made) == 1 + complete.offered
    for path in (tmp_path / "tune-2").rglob("*"):
        if path.is_file():
            path.write_bytes(b"{")
            break
    assert run(tmp_path, 3600.0).known == complete.offered  # the damaged one is made again


def test_a_setting_that_spills_is_tried_and_not_ranked(made: list[str], tmp_path: Path) -> None:
    report = run(tmp_path, 3600.0)
    ratio, best = report.ranked[0]
    assert (ratio, best.values["num_warps"]) == (0.5, 2)
    assert all(one.values.get("num_stages") != 2 for _, one in report.ranked)
    assert any("spill" in line for line in report.lines())
    assert "num_warps=2" in report.lines()[1] and report.fields()["ranked"][0]["ratio"] == 0.5


def test_rules_whose_own_choice_spills_are_compared_with(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its estimate counts, and it is not ranked; without one the best setting is what others are compared
    with."""
    others = tool.estimated

    def spilling(call: Any, one: Any, *, spilled: bool = False) -> TunedCost:
        if one.setting:
            return others(call, one)
        return TunedCost(cycles=200.0 if spilled else 0.0, scratch_bytes=64)

    monkeypatch.setattr(tool, "estimated", spilling)
    report = run(tmp_path, 3600.0)
    assert report.ranked[0][0] == 0.25 and all(one.values for _, one in report.ranked)
    assert "not usable: spills 64 bytes of scratch" in report.lines()[1]

    def refused(call: Any, one: Any, *, spilled: bool = False) -> TunedCost:
        return others(call, one) if one.setting else TunedCost(refused="too much LDS")

    monkeypatch.setattr(tool, "estimated", refused)
    report = run(tmp_path / "other", 3600.0)
    assert report.ranked[0][0] == 1.0
    assert "share of the best setting" in report.lines()[0] and "too much LDS" in report.lines()[1]
    with pytest.raises(UnsupportedError, match="nothing to keep"):
        write_found(report, tmp_path, date="2026-11-23", triton="3.9.0")


def test_stored_estimates_hold_for_the_occupancy_rules_that_made_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every module of the targets that the cost model takes part of is in the digest."""
    covered = set(group_files("verifier")) | set(group_files("cost model"))
    taken = {
        found.replace(".", "/") + ".py"
        for path in (ROOT / "aotforge" / "devtools" / "cost").glob("*.py")
        for found in re.findall(
            r"^from (aotforge\.(?:targets|compile)\.[\w.]+)", path.read_text(), re.MULTILINE
        )
    }
    # where they only call the compiler, or name a type, an estimate does not change
    assert taken - covered <= {f"aotforge/compile/{name}.py" for name in ("cache", "compile_plan", "model")}
    before = tool.model_digest()
    changed = group_files("cost model") | {"aotforge/targets/amd/backend.py": Path(__file__)}
    monkeypatch.setattr(
        source_groups,
        "group_files",
        lambda group, root: changed if group == "cost model" else group_files(group),
    )
    assert tool.model_digest() != before


def found(values: Mapping[str, int], cycles: float, functional: Mapping[str, str]) -> Search:
    rules = Tried(values={}, estimates=(TunedCost(cycles=100.0),))
    tried = (Tried(values=values, estimates=(TunedCost(cycles=cycles),)),)
    return Search(
        kernel="flash.attn_fwd", arch="gfx942", functional=functional, shapes=("seqlen_q=64",),
        present={"BLOCK_M": 64}, rules=rules, tried=tried, offered=1, known=0, seconds=1.0,
    )  # fmt: skip


def test_the_best_setting_is_kept_once_per_functional_and_rows_stay(tmp_path: Path) -> None:
    folder = tmp_path / "tuning"
    shutil.copytree(PROJECT / "manifests" / "tuning", folder)
    before = load_tuning(folder)
    path, old = before.of("gfx942", 64)
    text = path.read_text()
    for setting, cycles in (({"BLOCK_M": 32}, 90.0), ({"BLOCK_M": 16}, 80.0)):
        write_found(found(setting, cycles, {"dtype": "fp16"}), folder, date="2026-11-22", triton="3.9.0")
    write_found(found({"BLOCK_M": 64}, 120.0, {"dtype": "bf16"}), folder, date="2026-11-22", triton="3.9.0")
    after = load_tuning(folder).of("gfx942", 64)[1]
    kept = [(one.functional["dtype"], one.setting, one.ratio) for one in after.found if one not in old.found]
    assert kept == [("bf16", {}, 1.0), ("fp16", {"BLOCK_M": 16}, 0.8)]
    assert [one for one in after.found if one in old.found] == list(old.found)
    assert after.kernels == old.kernels and path.read_text().startswith(text.partition("\nfound:")[0])


def timed(*ratios: tuple[float, ...], emulator: str = "") -> Search:
    """Of the rules, which take 2 ms, and of settings with these shares by shape."""
    on = TimedOn(name="MI100", versions=("HIP 7.0.0", "ROCm 7.0"), emulator=emulator)

    def estimates(shares: tuple[float, ...]) -> tuple[TunedCost, ...]:
        return tuple(TunedCost(milliseconds=2 * one, ratio=one) for one in shares)

    tried = tuple(Tried(values={"BLOCK_M": n}, estimates=estimates(one)) for n, one in enumerate(ratios))
    rules = Tried(values={}, estimates=estimates((1.0,) * len(ratios[0])))
    shapes = tuple(f"seqlen_q={64 << n}" for n in range(len(ratios[0])))
    base = found({}, 1.0, {"dtype": "fp16"})
    return dataclasses.replace(base, rules=rules, tried=tried, shapes=shapes, timed=on)


def test_times_are_kept_with_their_device_beside_the_estimates(tmp_path: Path) -> None:
    folder = tmp_path / "tuning"
    shutil.copytree(PROJECT / "manifests" / "tuning", folder)
    write_found(found({"BLOCK_M": 16}, 80.0, {"dtype": "fp16"}), folder, date="2026-11-22", triton="3.9.0")
    for date in ("2026-11-22", "2026-11-23"):
        write_found(timed((0.5, 1.2), (0.9, 0.8)), folder, date=date, triton="3.9.0")
    kept = [
        one for one in load_tuning(folder).of("gfx942", 64)[1].found if one.functional == {"dtype": "fp16"}
    ]
    estimate, time = sorted(kept, key=lambda one: one.timed is not None)
    assert (estimate.timed, estimate.cycles) == (None, (100,))
    assert time.timed is not None and time.cycles == () and time.date == "2026-11-23"
    assert (time.timed.device, time.timed.versions) == ("MI100", ("HIP 7.0.0", "ROCm 7.0"))
    assert time.timed.milliseconds == (2.0, 2.0)
    assert time.setting == {"BLOCK_M": 0}
    text = "\n".join(timed((0.5,)).lines())
    assert "times as a share of the rules' choice" in text and "on MI100, HIP 7.0.0, ROCm 7.0" in text
    with pytest.raises(ReportError, match="the times are of virtual HIP"):
        write_found(timed((0.5,), emulator="virtual HIP"), folder, date="2026-11-23", triton="3.9.0")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("add --budget 5", "--budget 5 is not a valid time"),
        ("add --budget 0m --device", "--budget 0m is not a valid time"),
        ("all --key width=64", "--key and --shape are of one kernel"),
        ("add --device --drift 0", "--drift and --seconds are more than 0"),
    ],
)
def test_flags_that_do_not_fit_are_usage_errors(
    words: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli(tasks.namespace, ["tune", *words.split()])
    assert caught.value.code == 2 and text in capsys.readouterr().err


RESULTS = [one for file in tuning().files.values() for one in file.found]


def rules_now(one: Found) -> Mapping[str, int]:
    _, kernel = find_kernel(PROJECT, one.kernel)
    offered = kernel.settings(target(one.arch), choose(kernel, one.functional))
    return present(changed_setting(offered), tuple(one.rules))


@pytest.mark.parametrize("one", RESULTS, ids=lambda one: f"{one.arch}-{one.kernel}-{one.functional['width']}")
def test_a_result_of_the_manifests_is_of_the_row_in_force(one: Found) -> None:
    """After a change of the row: the same `./dev tune KERNEL --arch ARCH --key ... --shape ... --write`."""
    assert rules_now(one) == one.rules
    measures = one.timed.milliseconds if one.timed else one.cycles
    assert len(measures) == len(one.shapes) and min(measures) > 0 and 0 < one.ratio <= 1 and one.tried
