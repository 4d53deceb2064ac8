"""Attestations of a release: bill of materials (CycloneDX 1.6, ECMA-424) and provenance.

The provenance is an in-toto statement (v1) with a SLSA predicate (slsa.dev/provenance/v1); a second builder's
differs in the builder's name only.
"""

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.bom_ref import BomRef
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, License, LicenseExpression
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from aotforge.formats.wheel import WheelName, is_attention_wheel
from aotforge.release.model import BuildTools, Origin, ReleaseFile

_NAMESPACE = uuid.UUID("9d3e8f0c-6a55-5d0b-9a0e-0f4a5d1c7b21")
"""Random, of the serial numbers (RFC 9562, version 5)."""

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:aotforge:release:1"


def sbom_json(origin: Origin, files: Iterable[ReleaseFile]) -> bytes:
    """The bill of all `files`. Equal arguments give equal bytes."""
    listed = sorted(files, key=lambda file: file.name)
    seed = "\n".join(f"{file.sha256}  {file.name}" for file in listed)
    text = "Attention kernels compiled ahead of time, and the library that serves them"
    root = _library("aotriton", origin.release, "release", DisjunctiveLicense(id="MIT"), description=text)
    parts = _linked(origin.tools)
    archives = [_file(file) for file in listed]
    bom = _bom(origin, root, [*archives, *parts], seed=f"{origin.release}\n{seed}")
    bom.register_dependency(root, archives)
    for component in archives:
        name = component.name
        library = name.endswith(("-shared.tar.gz", "-shared.zip")) or is_attention_wheel(name)
        bom.register_dependency(component, parts if library else [])
    return _encoded(bom)


def wheel_sbom_json(origin: Origin, wheel: WheelName, members: Mapping[str, bytes]) -> bytes:
    """The bill of a wheel's `members`, for its own `sboms` folder (PEP 770)."""
    root = _library(
        *(wheel.name, wheel.version, "wheel", DisjunctiveLicense(id="MIT")),
        purl=PackageURL(type="pypi", name=wheel.name, version=wheel.version),
        properties=[Property(name="aotforge:release", value=origin.release)],
    )
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(members.items())}
    files = [
        _file(ReleaseFile(name=name, size=len(members[name]), sha256=digest))
        for name, digest in digests.items()
    ]
    parts = _linked(origin.tools) if is_attention_wheel(str(wheel)) else []
    seed = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    bom = _bom(origin, root, [*files, *parts], seed=f"{wheel}\n{seed}")
    bom.register_dependency(root, [*files, *parts])
    return _encoded(bom)


def _bom(origin: Origin, root: Component, components: Iterable[Component], *, seed: str) -> Bom:
    return Bom(
        serial_number=uuid.uuid5(_NAMESPACE, seed),
        components=components,
        metadata=BomMetaData(
            component=root,
            timestamp=datetime.fromtimestamp(origin.epoch, tz=UTC),
            tools=ToolRepository(components=_tools(origin.tools)),
        ),
    )


def _encoded(bom: Bom) -> bytes:
    return (JsonV1Dot6(bom).output_as_string(indent=1) + "\n").encode("utf-8")


def _file(file: ReleaseFile) -> Component:
    tar = [Property(name="aotforge:tar-sha256", value=file.tar_sha256)] if file.tar_sha256 else []
    return Component(
        name=file.name,
        type=ComponentType.FILE,
        bom_ref=BomRef(f"file:{file.name}"),
        hashes=[_sha256(file.sha256)],
        properties=[Property(name="aotforge:size", value=str(file.size)), *tar],
    )


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)


def _linked(tools: BuildTools) -> list[Component]:
    """Libraries that are part of ours."""
    file, digest = tools.zstd
    name, _, number = file.removesuffix(".tar.gz").rpartition("-")
    zstd = _library(
        *("zstd (decoder, linked statically)", number, "part:zstd"),
        LicenseExpression("BSD-3-Clause OR GPL-2.0-only"),
        hashes=[_sha256(digest)],
        purl=PackageURL(type="pypi", name=name, version=number),
        description=f"C sources from {file}",
    )
    licence = LicenseExpression("GPL-3.0-or-later WITH GCC-exception-3.1")
    return [zstd, _library("libstdc++ (linked statically)", tools.compiler, "part:libstdc++", licence)]


def _library(name: str, version: str, ref: str, licence: License, **more: Any) -> Component:
    kind = ComponentType.LIBRARY
    return Component(name=name, version=version, type=kind, bom_ref=ref, licenses=[licence], **more)


def _tools(tools: BuildTools) -> list[Component]:
    chain = tools.toolchain
    return [
        Component(name="aotforge", type=ComponentType.APPLICATION),
        Component(
            name="triton",
            version=chain.triton_version,
            type=ComponentType.APPLICATION,
            purl=PackageURL(type="pypi", name="triton", version=chain.triton_version),
            properties=[
                Property(name="aotforge:files-sha256", value=chain.triton_digest),
                Property(name="aotforge:llvm-revision", value=chain.llvm_revision),
            ],
        ),
        Component(name="C++ compiler", version=tools.compiler, type=ComponentType.APPLICATION),
        *(
            Component(
                name=name,
                type=ComponentType.CONTAINER,
                scope=ComponentScope.EXCLUDED,
                hashes=[_sha256(digest)],
            )
            for name, digest in tools.roots
        ),
    ]


def statement_json(origin: Origin, digests: Mapping[str, str], *, builder: str) -> bytes:
    """The statement about files (its subjects) of these SHA-256, made by `builder` (a URI)."""
    tools = origin.tools
    wheel = {"name": "triton", "uri": f"pkg:pypi/triton@{tools.toolchain.triton_version}"}
    materials: list[dict[str, Any]] = [
        {"name": "sources", "digest": {"gitCommit": origin.commit}},
        {**wheel, "annotations": {"filesSha256": tools.toolchain.triton_digest}},
        *({"name": name, "digest": {"sha256": digest}} for name, digest in [tools.zstd] if name),
        *({"name": f"root filesystem {name}", "digest": {"sha256": digest}} for name, digest in tools.roots),
    ]
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(digests.items())],
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
