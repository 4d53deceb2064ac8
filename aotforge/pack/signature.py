"""`__signature__`, the inputs of a pack as canonical JSON. Fields in docs/image-pack-format.md."""

import json
from typing import Annotated, Literal

from pydantic import Field

from aotforge.base.manifest_reader import Manifest
from aotforge.formats.untrusted_file import parse_model
from aotforge.pack.binary import FILE_NAME, damaged

SIZE_LIMIT = 1024 * 1024

_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Name = Annotated[str, Field(min_length=1, max_length=255)]


class TritonBuild(Manifest):
    """The compiler: its version, the digest of its files, the LLVM revision in it."""

    version: str
    digest: str
    llvm: str


class ContainerRecord(Manifest):
    """How many images a container holds, and its container ID."""

    images: Annotated[int, Field(ge=1, le=65_536)]
    id: _Sha256


class Signature(Manifest):
    """The contents of `__signature__`. `release` is the one that the pack was first built for."""

    format: Literal[1]
    pack: _Name
    archs: tuple[_Name, ...]
    profile: _Name
    complete: bool
    release: _Name
    operators: dict[_Name, _Sha256]
    triton: TritonBuild
    source: _Sha256
    settings: _Sha256
    compressor: str
    containers: dict[_Name, ContainerRecord]
    images: Annotated[int, Field(ge=1)]
    dispatch: _Sha256


def encode_signature(signature: Signature) -> bytes:
    """Canonical JSON: sorted keys, an indent of one space, ASCII, a final newline."""
    text = json.dumps(signature.model_dump(mode="json"), sort_keys=True, indent=1, ensure_ascii=True)
    return (text + "\n").encode("ascii")


def decode_signature(data: bytes, *, file: str) -> Signature:
    """Strict: unknown fields, other types and text that is not canonical are refused with PackError."""
    try:
        signature = parse_model(data, Signature)
    except ValueError as error:
        raise damaged(file, str(error)) from error
    if encode_signature(signature) != data:
        raise damaged(file, "is not in canonical form")
    for name in signature.containers:
        if not FILE_NAME.fullmatch(name):
            raise damaged(file, f"{name!r} is not a valid file name of a pack")
    return signature
