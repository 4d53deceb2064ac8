"""Shares of a campaign: several processes of one target, and the merge of what they found, here or elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.campaigns.fuzzing import fuzz
from tests.campaigns.fuzzing.__main__ import main
from tests.campaigns.fuzzing.shares import digest_of, read_shares, run_shares, total
from tests.campaigns.fuzzing.target import Run, Target

NAME = "assembly texts"


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus of this test alone."""
    monkeypatch.setattr(fuzz, "CORPUS", tmp_path / "corpus")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "corpus"


def _share(
    folder: Path, *, sources: str = "", inputs: Sequence[bytes] = (), errors: Sequence[str] = ()
) -> None:
    (folder / "corpus").mkdir(parents=True)
    for number, data in enumerate(inputs):
        (folder / "corpus" / str(number)).write_bytes(data)
    for number, error in enumerate(errors):
        (folder / f"finding-{number}").write_bytes(error.encode())
    row = {"target": NAME, "seconds": 90.0, "runs": 10, "lines": 5, "errors": errors}
    (folder / "result.json").write_text(json.dumps({**row, "sources": sources or digest_of(NAME)}))


def test_a_target_is_fuzzed_by_several_processes_with_other_seeds(tmp_path: Path) -> None:
    run_shares([NAME], tmp_path, minutes=0.002, jobs=2, elapsed=10, seed=1)
    shares = read_shares([tmp_path])[NAME]
    assert len(shares) == 2 and all(share.row["runs"] > 2 for share in shares)
    assert len({(share.folder / "running").read_bytes() for share in shares}) == 2
    assert total(shares)["runs"] == sum(share.row["runs"] for share in shares)


def test_an_input_that_ends_the_process_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\nprintf planted >"$4/running"\nkill -9 $$\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    run_shares([NAME], tmp_path / "results", minutes=1, jobs=1, elapsed=10, seed=1)
    (share,) = read_shares([tmp_path / "results"])[NAME]
    assert share.findings() == [(b"planted", "ended with -9")]


def test_inputs_of_runs_elsewhere_are_added(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = b".text\ns_endpgm\n"
    _share(tmp_path / "a" / "texts-0", inputs=[kept])
    _share(tmp_path / "b" / "texts-0", inputs=[kept * 2], errors=["KeyError()"])
    assert main(["--import", str(tmp_path / "a"), str(tmp_path / "b"), "--write"]) == 1
    name, _, row = capsys.readouterr().out.strip().partition(" {")
    found = json.loads("{" + row)
    assert name == NAME and (found["minutes"], found["runs"], found["findings"]) == (3.0, 20, 1)
    assert (tmp_path / "findings" / "assembly-texts-0").read_bytes() == b"KeyError()"
    assert found["corpus"] == len(fuzz.stored(NAME)) == 1


def test_results_of_other_sources_are_refused(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _share(tmp_path / "a" / "texts-0")
    _share(tmp_path / "a" / "texts-1", sources="other")
    assert main(["--import", str(tmp_path / "a"), "--write"]) == 1
    assert not corpus.exists()
    assert f"not of these sources: {NAME}" in capsys.readouterr().err


def test_the_smallest_inputs_that_add_lines_are_kept(corpus: Path, tmp_path: Path) -> None:
    @contextmanager
    def opened() -> Iterator[tuple[Sequence[bytes], Run]]:
        def run(data: bytes) -> None:
            if b"x" in data:
                data = b"one"
            if b"y" in data:
                data = b"two"

        yield [b"seed"], run

    found = tmp_path / "found"
    found.mkdir()
    for data in (b"xxxx", b"x", b"xx", b"long y", b"nothing"):
        (found / data.decode()).write_bytes(data)
    inputs, lines = fuzz.keep_from("planted", Target(open=opened, modules=("test_shares",)), [found])
    assert (inputs, lines) == (2, 4)
    assert sorted(fuzz.stored("planted")) == [b"long y", b"x"]
