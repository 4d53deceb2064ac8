"""Every child process gets the environment of its kind, and the page that lists them is current."""

from __future__ import annotations

import pytest

from aotforge.base.child_processes import KINDS, child_environment
from tests.support.child_processes import PAGE, STARTERS, callers, direct_starts, page, trees

SECRETS = (
    *("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AOTFORGE_KEYS"),
    *("AOTFORGE_KEY_ROOT", "AOTFORGE_KEY_TARGETS", "AOTFORGE_KEY_SNAPSHOT", "AOTFORGE_KEY_TIMESTAMP"),
    *("AOTFORGE_SIGNING_KEY", "GITHUB_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "HF_TOKEN", "SSH_PRIVATE_KEY"),
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_inherits_a_secret(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "planted")
    monkeypatch.setenv("SOME_NEW_VARIABLE", "planted")
    assert "planted" not in child_environment(kind).values()
    assert "planted" not in child_environment(kind, dict.fromkeys(SECRETS, "planted")).values()


def test_a_child_gets_what_is_inherited_fixed_and_added() -> None:
    given = {"PATH": "/bin", "LC_ALL": "de_DE", "PIP_INDEX_URL": "x", "CC": "cc"}
    assert child_environment("compiler", given, {"ONE": "1"}) == {"PATH": "/bin", "LC_ALL": "C", "ONE": "1"}
    assert child_environment("pip", given) == {"PATH": "/bin", "PIP_INDEX_URL": "x"}


def test_only_one_module_starts_processes() -> None:
    found = {path: starts for path, tree in trees().items() if (starts := direct_starts(tree))}
    assert found.keys() <= STARTERS.keys(), found


def test_every_kind_is_started_somewhere() -> None:
    assert callers().keys() == KINDS.keys()


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.support.child_processes"
