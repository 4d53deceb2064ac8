"""compat/pytorch.yaml against the reference matrix, fact by fact, and our place in it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from aotforge.base.manifest_reader import read_yaml
from aotforge.conformance.matrix import Compatibility, levels_for, levels_of_names, load_matrix
from aotforge.conformance.matrix_models import Row
from aotforge.errors import ManifestError, UnknownNameError, UnsupportedError
from aotforge.formats.api_level import feature_level, library_name, version_key

ROOT = Path(__file__).parents[3]
REFERENCE = read_yaml(ROOT / "tests" / "fixtures" / "compat" / "reference_rows.yaml").values
NAMES = {
    "main_mid_2026": "main (mid-2026)",
    "main_after_2026_09_26": "main (after 2026-09-26)",
    "main_2026_11": "main (2026-11)",
}
FACTS = [
    (project, pytorch, entry)
    for key, project in (("upstream", "upstream"), ("rocm_fork", "rocm-fork"))
    for pytorch, entry in REFERENCE[key].items()
]


@pytest.fixture(scope="module")
def compat() -> Compatibility:
    return load_matrix(ROOT)


def row_of(compat: Compatibility, project: str, pytorch: str) -> Row:
    name = NAMES.get(pytorch, pytorch)
    if name.startswith("<="):
        name = f"{name.removeprefix('<=')} and older"
    return next(row for row in compat.rows if row.name == f"{project} {name}")


def listed(value: Any) -> list[str]:
    return [] if value is None else list(value) if isinstance(value, list) else [str(value)]


@pytest.mark.parametrize(("project", "pytorch", "entry"), FACTS, ids=[f"{p} {v}" for p, v, _ in FACTS])
def test_every_fact_of_the_reference_is_in_its_row(
    compat: Compatibility, project: str, pytorch: str, entry: dict[str, Any]
) -> None:
    row = row_of(compat, project, pytorch)
    left = dict(entry)
    pins = listed(left.pop("pin", None)) + listed(left.pop("pins", None)) + listed(left.pop("aotriton", None))
    assert list(row.releases("pins")) == pins
    assert list(row.releases("compiles")) == left.pop("compiles", [])
    assert list(row.releases("documented")) == left.pop("readme", [])
    assert list(row.releases("drop-in-only")) == left.pop("drop_in_only", [])
    commit = left.pop("commit", None)
    assert [s.commit for s in row.statements if s.relation == "pins" and s.commit] == (
        [str(commit)] if commit else []
    )
    delivery = row.delivery
    for key, field in (("link", "link"), ("delivery", "from_")):
        if key in left:
            assert delivery is not None and getattr(delivery, field) == left.pop(key)
    if "rocm" in left:
        assert delivery is not None and list(delivery.rocm) == left.pop("rocm")
    if "manylinux" in left:
        assert delivery is not None and delivery.manylinux == left.pop("manylinux").split()[0]
    if "images" in left:
        assert delivery is not None and list(delivery.images or ()) == left.pop("images")
    if "images_added" in left:
        before = compat.find("2.13").delivery
        assert delivery and before
        assert {*(delivery.images or ())} - {*(before.images or ())} == set(left.pop("images_added"))
    if "note" in left:
        words = set(re.findall(r"[\w.]+", left.pop("note"))) - {
            *["kVersion", "4", "7", "here", "available", "not", "support"]
        }
        found = " ".join(row.remarks)
        assert all(word in found for word in words), (words, found)
    assert left == {}
    kinds = {"pins": "pin", "compiles": "compiles"}
    assert all(s.evidence == kinds.get(s.relation, "readme") for s in row.statements)


def test_no_row_is_made_up(compat: Compatibility) -> None:
    named = {row_of(compat, project, pytorch).name for project, pytorch, _ in FACTS}
    extra = {row.name: row for row in compat.rows if row.name not in named}
    assert set(extra) == {"rocm-fork 2.10", "upstream 2.14", "upstream 2.15"}
    assert not any(row.releases("pins") for row in extra.values())
    assert all("not" in row.remarks[0] for row in extra.values())


def test_manylinux_from_2_6_on(compat: Compatibility) -> None:
    upstream = [row for row in compat.rows if row.project == "upstream"]
    rows = [row for row in upstream if row.pytorch not in {"main", "2.14", "2.15"} and not row.and_older]
    assert len(rows) >= 10
    for row in rows:
        minor = int(row.pytorch.split(".")[1])
        wanted = "manylinux_2_28" if minor >= 6 else "manylinux_2_17" if minor == 5 else None
        assert row.delivery and row.delivery.manylinux == wanted


# the footnotes of the reference, in its order, with the rows that each concerns and what it forbids there
NOTES: list[tuple[str, str, tuple[str, ...], dict[str, tuple[tuple[str, ...], str]]]] = [
    ("packaging-0.8", "packaging scheme changed drastically", ("2.5", "2.6"), {}),
    ("features-0.8", "fails at run time", ("2.6",), {"2.6": (("0.7b", "0.7.1b"), "run-time failure")}),
    ("only-0.9.2", "0.9b and 0.9.1b must not be used", ("2.7",),
        {"2.7": (("0.9b", "0.9.1b"), "link trouble")}),
    ("drop-in-0.10", "but 2.7 cannot be built with it", ("2.7",), {}),
    ("windows-0.10", "loses sliding-window attention", ("2.8",),
        {"2.8": (("0.9b", "0.9.2b"), "lost feature")}),
    ("context-parallelism", "pytorch/pytorch#156012", ("2.9",), {"2.9": (("0.10b",), "run-time failure")}),
    ("point-releases", "drop-in replacements for it", ("2.3", "2.9", "2.13"), {}),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFERENCE["readme_notes"])))
def test_every_footnote_is_attached_to_the_rows_it_concerns(compat: Compatibility, number: int) -> None:
    name, words, pytorches, forbidden = NOTES[number]
    reference = REFERENCE["readme_notes"][number]
    note = compat.matrix.notes[name]
    assert words in reference and words in note.text
    assert set(re.findall(r"\d+\.\d+\.?\d*b", reference)) <= set(re.findall(r"\d+\.\d+\.?\d*b", note.text))
    assert set(re.findall(r"\S+#\d+", reference)) <= {*re.findall(r"\S+#\d+", note.text)}
    for pytorch in pytorches:
        row = compat.find(pytorch)
        assert name in row.notes
        found = [
            (s.releases, s.reason) for s in row.statements if s.note == name and s.relation == "must-not"
        ]
        assert found == ([forbidden[pytorch]] if pytorch in forbidden else [])


def test_the_reference_has_no_more_footnotes() -> None:
    assert len(NOTES) == len(REFERENCE["readme_notes"])


@pytest.mark.parametrize("pytorches", REFERENCE["compile_matrix_seen"])
def test_compile_matrix(compat: Compatibility, pytorches: str) -> None:
    first, _, last = pytorches.partition("-")
    minors = range(int(first.split(".")[1]), int((last or first).split(".")[1]) + 1)
    assert minors
    for minor in minors:
        row = compat.find(f"2.{minor}")
        assert list(row.releases("compiles")) == REFERENCE["compile_matrix_seen"][pytorches]
        assert row.calls is not None
        levels = {feature_level(name) for name in row.releases("compiles") if version_key(name) < (0, 13)}
        assert levels <= set(compat.calls.sets[row.calls].levels)


SERVED = {
    "upstream 2.9": ("libaotriton_v2.so.0.11.0",),
    "upstream 2.10": ("libaotriton_v2.so.0.11.1",),
    "upstream 2.11": ("libaotriton_v2.so.0.11.2",),
    "upstream 2.12": ("libaotriton_v2.so.0.11.2",),
    "rocm-fork 2.9": ("libaotriton_v2.so.0.11.0", "libaotriton_v2.so.0.11.1"),
    "rocm-fork 2.12": ("libaotriton_v2.so.0.11.2",),
}


def test_our_place(compat: Compatibility) -> None:
    assert compat.rows
    for row in compat.rows:
        service = compat.service(row)
        assert service.build == (row.name in SERVED)
        assert service.links == SERVED.get(row.name, ())
        assert service.partly == (row.name == "rocm-fork 2.12")
        assert bool(service.reason) == (row.name not in SERVED or service.partly)


def test_versions_as_people_write_them(compat: Compatibility) -> None:
    assert compat.find("2.9.1").name == compat.find("v2.9").name == "upstream 2.9"
    assert compat.find("2.9.0+rocm6.4", fork=True).name == "rocm-fork 2.9"
    assert compat.find("2.9.0+rocm6.4").name == "upstream 2.9"
    assert compat.find("2.11.0+rocm7.14.0").name == "rocm-fork 2.11"
    assert compat.find("2.12.0+rocm10.1.0a20260811").name == "rocm-fork 2.12"
    assert compat.find("main").name == "upstream main (2026-11)"
    assert compat.find("1.13").name == compat.find("2.0").name == "upstream 2.2 and older"
    for unknown in ("3.0", "2.99", "nonsense", ""):
        with pytest.raises(UnknownNameError, match="not in the matrix") as caught:
            compat.find(unknown)
        assert "perhaps" not in str(caught.value) and ", 2.9, 2.10, " in caught.value.cause
        assert caught.value.cause.count("main") == 1
    assert compat.release_named("v0.10") == "0.10b"
    with pytest.raises(UnknownNameError):
        compat.release_named("10")


def test_names_and_orders() -> None:
    assert library_name("0.11b") == "libaotriton_v2.so.0.11.0"
    assert library_name("0.9.2b") == "libaotriton_v2.so.0.9.2"
    ordered = ["0.9b", "0.9.2b", "0.10b", "0.11.1b"]
    assert sorted(sorted(ordered), key=version_key) == ordered


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("reason: lost feature, ", "", "has a reason"),
        ('calls: "2.9-2.12"', 'calls: "2.9-2.13"', "is not a set"),
        ("pins, releases: [0.11b]", "pins, releases: []", "at least 1 item"),
        ("evidence: pin}", "evidence: hearsay}", "evidence"),
        ("commit: 04b5df8c", "commits: 04b5df8c", "unknown key"),
    ],
)
def test_a_wrong_matrix_is_refused(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    for folder in ("compat", "manifests"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    path = tmp_path / "compat" / "pytorch.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ManifestError, match=re.escape(complaint)) as raised:
        load_matrix(tmp_path)
    assert "pytorch.yaml" in str(raised.value)


def test_rows_and_notes_refer_to_each_other(compat: Compatibility) -> None:
    names = [row.name for row in compat.rows]
    assert len(set(names)) == len(names)
    for row in compat.rows:
        assert {s.note for s in row.statements if s.note} <= {*row.notes} <= compat.matrix.notes.keys()
    assert {name for row in compat.rows for name in row.notes} == compat.matrix.notes.keys()


@pytest.mark.parametrize(
    ("version", "built", "links"),
    [
        (
            "0.12.1b",
            {"upstream 2.13", "upstream 2.14", "upstream main (mid-2026)", "rocm-fork 2.11",
                "rocm-fork 2.12"},
            {f"libaotriton_v2.so.0.12.{patch}" for patch in (0, 1, 50)},
        ),
        (
            "0.13b",
            {"upstream 2.13", "upstream 2.14", "upstream main (mid-2026)", "rocm-fork 2.11", "rocm-fork 2.12",
             "rocm-fork 2.13", "rocm-fork 2.14"},
            {"libaotriton_v2.so.0.13.0", "libaotriton_v2.so.0.13.50"},
        ),
        (
            "0.14.2b",
            {"upstream main (after 2026-09-26)", "upstream main (2026-11)"},
            {"libaotriton_v2.so.0.14.2", "libaotriton_v2.so.0.14.50"},
        ),
    ],
)  # fmt: skip
def test_what_other_levels_serve(version: str, built: set[str], links: set[str]) -> None:
    compat = load_matrix(ROOT, version)
    services = [compat.service(row) for row in compat.rows]
    assert {service.row.name for service in services if service.build} == built
    assert {link for service in services for link in service.links} == links
    assert (
        compat.names[0]
        == f"libaotriton_v2.so.{'.'.join(map(str, compat.interface.levels[compat.level].version))}"
    )


@pytest.mark.parametrize(
    ("pytorch", "fork", "levels"),
    [
        ("2.9", False, ("0.11.2b",)),
        ("2.12.1", False, ("0.11.2b",)),
        ("2.13", False, ("0.12.1b", "0.13b")),
        ("main", False, ("0.14.2b",)),
        ("2.12", True, ("0.11.2b", "0.12.1b", "0.13b")),
        ("2.11.0+rocm7.14.0", False, ("0.12.1b", "0.13b")),
        ("2.14", False, ("0.12.1b", "0.13b")),
        ("2.14", True, ("0.13b",)),
    ],
)
def test_levels_that_a_pytorch_takes(pytorch: str, fork: bool, levels: tuple[str, ...]) -> None:
    """Those that it pins come first."""
    assert levels_for(ROOT, pytorch, fork=fork) == levels


def test_no_level_for_an_older_pytorch() -> None:
    with pytest.raises(UnsupportedError, match=r"2\.8 cannot be built with any API level"):
        levels_for(ROOT, "2.8")


def test_levels_by_the_names_that_a_program_loads() -> None:
    assert levels_of_names(ROOT, ["libaotriton_v2.so.0.11.0"]) == ("0.11.2b",)
    assert levels_of_names(ROOT, ["libaotriton_v2.so.0.12.0", "libaotriton_v2.so.0.12.1"]) == ("0.12.1b",)
    for patch in (0, 1, 2, 7, 50):  # 7: not released yet
        assert levels_of_names(ROOT, [f"libaotriton_v2.so.0.14.{patch}"]) == ("0.14.2b",)
    with pytest.raises(UnsupportedError, match=r"0\.9\.2") as caught:
        levels_of_names(ROOT, ["libaotriton_v2.so.0.9.2"])
    assert (
        caught.value.cause == "it is of feature release 0.9, and this checkout makes 0.11, 0.12, 0.13, 0.14"
    )
    with pytest.raises(UnsupportedError) as caught:
        levels_of_names(ROOT, ["libaotriton_v2.so.0.11.0", "libaotriton_v2.so.0.12.0"])
    assert "several feature releases" in caught.value.cause
