"""Schedulers without encryption execute code of everyone who reaches them: the user must trust all of these."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.errors import ClusterError
from aotforge.pipeline.cluster.cluster import check_encrypted
from aotforge.pipeline.cluster.engine import open_cluster
from aotforge.publish.cache.session import SharedCache
from tests.support.cluster import request_of


@pytest.mark.parametrize(
    "address",
    ["tcp://127.0.0.1:8786", "tcp://10.1.2.3:8786", "tcp://8.8.8.8:8786", "ws://host:1", "host:8786"],
)
def test_only_tls_is_taken_without_the_flag(address: str) -> None:
    with pytest.raises(ClusterError, match="not encrypted") as caught:
        check_encrypted(address, trusted=False)
    assert "docs/scale.md" in caught.value.hint and "--trust-network" in caught.value.hint
    check_encrypted(address, trusted=True)
    check_encrypted("tls://10.1.2.3:8786", trusted=False)


def test_a_build_connects_to_no_such_scheduler(tmp_path: Path) -> None:
    request = request_of(tmp_path, "tcp://127.0.0.1:8786", trust_network=False)
    shared = SharedCache(note=lambda text: None, writer=object())  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match="not encrypted"), open_cluster(request, shared, lambda text: None):
        pass
