"""The environment of child processes has no secrets, and one module starts them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from aotforge.base.child_processes import (
    ENGINE,
    NETWORK,
    USER_PYTHON,
    child_environment,
    fixed_environment,
    is_secret,
    tool_environment,
)

ROOT = Path(__file__).resolve().parents[3]
SECRETS = (
    *("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AOTFORGE_KEYS"),
    *("AOTFORGE_KEY_ROOT", "AOTFORGE_KEY_TARGETS", "AOTFORGE_KEY_SNAPSHOT", "AOTFORGE_KEY_TIMESTAMP"),
    *("AOTFORGE_SIGNING_KEY", "GITHUB_TOKEN", "GH_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "HF_TOKEN"),
    *("SSH_PRIVATE_KEY", "TWINE_PASSWORD", "DB_PASSWD", "DB_PASS", "GPG_PASSPHRASE", "AZURE_CLIENT_SECRET"),
    *("OPENAI_API_KEY", "MY_APIKEY", "CI_PAT", "DOCKER_AUTH_CONFIG", "NPM_AUTH", "GOOGLE_CREDENTIALS"),
    *("github_token",),
)  # fmt: skip
_STARTERS = {
    "aotforge/base/child_processes.py": "starts every child",
    "aotforge/compile/worker.py": "forks a compile worker for each job, with the worker's environment",
    "ttcpu/launch.py": "forks to repeat a launch that may fault, with the program's environment",
    "vgpu/native_code.py": "runs compilers, with a fixed environment",
    "aotforge/verify/native/child.py": "forks for each launch, with the environment of its worker",
}
"""The only modules that may start processes themselves, and why."""

_STARTING = {
    "subprocess": ("run", "Popen", "call", "check_", "getoutput", "getstatusoutput"),
    "os": ("system", "popen", "fork", "spawn", "exec", "posix_spawn"),
    "asyncio": ("create_subprocess",),
    "pty": ("fork", "spawn"),
    "multiprocessing": ("Process", "Pool"),
}


@pytest.mark.parametrize("keep", [(), NETWORK, ENGINE, USER_PYTHON])
def test_no_secret_is_inherited(keep: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "planted")
    given = dict.fromkeys(SECRETS, "planted")
    assert "planted" not in child_environment(keep=keep).values()
    assert "planted" not in child_environment(base=given, keep=keep).values()
    assert "planted" not in tool_environment().values()


def test_passwords_of_addresses_reach_those_who_fetch_packages_alone() -> None:
    given = {
        "HTTPS_PROXY": "http://user:secret@proxy:3128",
        "PIP_EXTRA_INDEX_URL": "https://token@one/simple https://user:secret@two/simple",
        "UV_INDEX_URL": "https://user:secret@two/simple/@scope",
        "PATH": "/bin",
    }
    plain = child_environment(base=given)
    assert plain["HTTPS_PROXY"] == "http://proxy:3128"
    assert plain["PIP_EXTRA_INDEX_URL"] == "https://one/simple https://two/simple"
    assert plain["UV_INDEX_URL"] == "https://two/simple/@scope"
    fetching = child_environment(base=given, keep=NETWORK)
    assert fetching["HTTPS_PROXY"] == given["HTTPS_PROXY"]
    assert fetching["PIP_EXTRA_INDEX_URL"] == given["PIP_EXTRA_INDEX_URL"]
    assert "secret" not in fetching["UV_INDEX_URL"]


def test_code_of_others_is_loaded_by_the_users_own_python_alone() -> None:
    given = {"LD_PRELOAD": "x.so", "PYTHONPATH": "/x", "PYTHONSTARTUP": "x.py", "GIT_DIR": "/x"}
    assert child_environment(base=given) == {"LC_ALL": "C.UTF-8"}
    kept = child_environment(base=given, keep=USER_PYTHON)
    assert kept == {"LC_ALL": "C.UTF-8", "LD_PRELOAD": "x.so", "PYTHONPATH": "/x"}


def test_a_child_gets_the_rest_and_what_is_added() -> None:
    given = {"PATH": "/bin", "LC_ALL": "de_DE", "LANG": "de_DE", "NEW": "x", "GIT_CONFIG_GLOBAL": "/g"}
    added = {"LC_ALL": "C", "HF_TOKEN": "on purpose"}
    assert child_environment(added, base=given) == given | added
    assert tool_environment(given) == {"PATH": "/bin", "LC_ALL": "C"}
    assert fixed_environment({"A": "1"}, "NEW", "MISSING", base=given) == {"NEW": "x", "A": "1"}


def test_names_of_secrets() -> None:
    names = ("HF_TOKEN", "hf_token", "AOTFORGE_KEYS", "PATH", "MONKEY", "CI_PAT")
    assert [name for name in names if is_secret(name)] == ["HF_TOKEN", "hf_token", "CI_PAT"]


def _starts(module: str, name: str) -> bool:
    return name.startswith(_STARTING.get(module, ("\0",)))


def _direct_starts(tree: ast.Module) -> list[str]:
    """Calls in a module that start a process without `base.child_processes`."""
    found = []
    types = {node.value for node in ast.walk(tree) if isinstance(node, ast.Subscript)}  # Popen[bytes]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found += [one.name for one in node.names if _starts(node.module or "", one.name)]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node not in types:
            found += [node.attr] if _starts(node.value.id, node.attr) else []
    return found


def test_only_one_module_starts_processes() -> None:
    packages = ("aotforge", "vgpu", "ttcpu")
    paths = [*(path for name in packages for path in (ROOT / name).rglob("*.py")), ROOT / "tasks.py"]
    found = {path.relative_to(ROOT).as_posix(): _direct_starts(ast.parse(path.read_text())) for path in paths}
    assert {path for path, starts in found.items() if starts} == _STARTERS.keys()
