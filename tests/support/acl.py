"""POSIX ACLs of test folders, without setfacl, which few machines have."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from aotforge.base.cache_trust import ACCESS_ACL

_OWNER, _USER, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
_NO_ID = 0xFFFFFFFF


def set_acl(folder: Path, user: int, rights: int = 7, *, attribute: str = ACCESS_ACL) -> None:
    """Gives `user` these rights (4 read, 2 write, 1 enter). Skips the test where the file system has no ACLs."""
    entries = [
        (_OWNER, 7, _NO_ID),
        (_USER, rights, user),
        (_GROUP, 5, _NO_ID),
        (_MASK, 7, _NO_ID),
        (_OTHER, 5, _NO_ID),
    ]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(folder, attribute, acl)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            pytest.skip("the file system of the test folder has no ACLs")
        if error.errno == errno.EINVAL and not _is_known(user):
            pytest.skip("this user namespace has no other user for an ACL")
        raise


def _is_known(user: int) -> bool:
    """Whether the number is one in this user namespace."""
    ranges = [line.split() for line in Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()]
    return any(int(first) <= user < int(first) + int(count) for first, _, count in ranges)
