"""Bounded reads of files, and JSON without surprises."""

import errno
import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

_M = TypeVar("_M", bound=BaseModel)

TEXT_LIMIT = 256 * 1024 * 1024
"""Bytes of the largest list or document of a release; release.json has about 2 kB per image."""

UNPACKED_LIMIT, MEMBERS_LIMIT = 2 * 1024**3, 50_000
"""Bytes that an archive of a release unpacks to, and its members; texts for every arch are 22,000."""


def read_regular(path: Path, *, limit: int = TEXT_LIMIT) -> bytes:
    """The bytes of a file. Raises OSError, also for more than `limit` bytes."""
    if path.is_fifo():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit} bytes", str(path))
    return data


def parse_json(data: bytes | str) -> Any:
    """Values of a JSON text. Raises ValueError for every text that is not valid, too deep or not UTF-8."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def parse_model(data: bytes | str, model: type[_M]) -> _M:
    """A JSON text as a model. Raises ValueError naming the first value that does not fit."""
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from None
