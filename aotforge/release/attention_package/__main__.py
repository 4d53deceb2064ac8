"""`python -m aotforge_attention [--json]`: what is loaded, or why nothing is; exit code 1 then."""

from __future__ import annotations

import importlib
import json
import sys

from . import facts, preload


def main() -> int:
    """Prints the state."""
    found = preload()
    lacking = None
    if found.library is None and found.torch_lib:
        device_wheels = importlib.import_module(f"{__package__}.device_wheels")
        lacking = device_wheels.without_family(found.torch_lib, found.needed)
    if "--json" in sys.argv[1:]:
        print(
            json.dumps(
                {"release": facts.RELEASE, "version": facts.VERSION, **vars(found), "lacking": lacking},
                indent=1,
            )
        )
        return 0 if found.library else 1
    for name, text in (
        ("release", f"{facts.RELEASE} (aotforge-attention {facts.VERSION})"),
        ("PyTorch", found.torch_lib or "not found"),
        ("needs", ", ".join(found.needed) or "no AOTriton library"),
        ("images", ", ".join(found.packs) or "none"),
        ("GPUs", ", ".join(found.gpus) or "unknown"),
        ("loaded", found.library or "nothing"),
        *((("reason", found.reason), ("next", found.hint)) if not found.library else ()),
        *((("PyTorch", lacking[0]), ("cure", lacking[1])) if lacking else ()),
    ):
        print(f"{name:8} {text}")
    return 0 if found.library else 1


if __name__ == "__main__":
    sys.exit(main())
