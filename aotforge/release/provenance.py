"""Provenance of a release: an in-toto statement (v1) with a SLSA predicate (slsa.dev/provenance/v1).

It lists request, commit and tools, and no time: a second builder's statement differs in the builder's name only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from aotforge.release.model import ReleaseFile
from aotforge.release.origin import Origin

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
BUILD_TYPE = "urn:aotforge:release:1"


def statement_json(origin: Origin, files: Iterable[ReleaseFile], *, builder: str) -> bytes:
    """The statement about `files` (its subjects), made by `builder` (a URI). Equal arguments give equal bytes."""
    tools = origin.tools
    wheel = {"name": "triton", "uri": f"pkg:pypi/triton@{tools.toolchain.triton_version}"}
    materials: list[dict[str, Any]] = [
        {"name": "sources", "digest": {"gitCommit": origin.commit}},
        {**wheel, "annotations": {"filesSha256": tools.toolchain.triton_digest}},
        {"name": tools.zstd[0], "digest": {"sha256": tools.zstd[1]}},
        *({"name": f"root filesystem {name}", "digest": {"sha256": digest}} for name, digest in tools.roots),
    ]
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": file.name, "digest": {"sha256": file.sha256}}
            for file in sorted(files, key=lambda file: file.name)
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "release": origin.release,
                    "archs": origin.archs,
                    "profile": origin.profile,
                    "platforms": origin.platforms,
                },
                "internalParameters": {
                    "sourceDateEpoch": origin.epoch,
                    "executor": tools.executor,
                    "compiler": tools.compiler,
                },
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": builder}},
        },
    }
    return (json.dumps(statement, indent=1, sort_keys=True) + "\n").encode("utf-8")
