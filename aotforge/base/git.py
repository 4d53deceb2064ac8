"""Environment for git without GIT_* variables: a calling git hook sets them for its own repository."""

import os

OF_A_REPOSITORY = frozenset(
    f"GIT_{name}"
    for name in (
        *(
            "DIR",
            "WORK_TREE",
            "IMPLICIT_WORK_TREE",
            "INDEX_FILE",
            "COMMON_DIR",
            "OBJECT_DIRECTORY",
            "PREFIX",
            "NAMESPACE",
        ),
        *("ALTERNATE_OBJECT_DIRECTORIES", "SHALLOW_FILE", "GRAFT_FILE"),
    )
)
"""Variables that tie git to one repository (`git rev-parse --local-env-vars`, without its configuration); hooks have some of them."""


def outside_environment() -> dict[str, str]:
    """This process's environment without those."""
    return {name: value for name, value in os.environ.items() if name not in OF_A_REPOSITORY}
