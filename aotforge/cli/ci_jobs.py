"""Continuous integration: the matrix of its jobs."""

from aotforge.cli.command import cli_command, print_result
from aotforge.pipeline.requests import CiRequest


@cli_command("ci.matrix")
def matrix(*, request: CiRequest) -> None:
    """Print the jobs that compile parts of a build, as a JSON list for a GitHub matrix (docs/scale.md)."""
    from json import dumps

    from aotforge.pipeline.ci_matrix import matrix

    print_result(dumps(matrix(request), separators=(",", ":")))
