"""`python -m aotforge_attention [--json]`: what is loaded, or why nothing is; exit code 1 then."""

from __future__ import annotations

import importlib
import json
import sys

from . import facts, preload


def main() -> int:
    """Prints the state."""
    status = preload()
    lacking = None
    if status.library is None and status.torch_lib:
        device_wheels = importlib.import_module(f"{__package__}.device_wheels")
        lacking = device_wheels.without_family(status.torch_lib, status.needed)
    if "--json" in sys.argv[1:]:
        print(
            json.dumps(
                {"release": facts.RELEASE, "version": facts.VERSION, **vars(status), "lacking": lacking},
                indent=1,
            )
        )
        return 0 if status.library else 1
    for name, text in (
        ("release", f"{facts.RELEASE} (aotforge-attention {facts.VERSION})"),
        ("PyTorch", status.torch_lib or "not found"),
        ("needs", ", ".join(status.needed) or "no AOTriton library"),
        ("images", ", ".join(status.packs) or "none"),
        ("GPUs", ", ".join(status.gpus) or "unknown"),
        ("loaded", status.library or "nothing"),
        *((("reason", status.reason), ("next", status.hint)) if not status.library else ()),
        *((("PyTorch", lacking[0]), ("cure", lacking[1])) if lacking else ()),
    ):
        print(f"{name:8} {text}")
    return 0 if status.library else 1


if __name__ == "__main__":
    sys.exit(main())
