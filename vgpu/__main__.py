"""The command `vgpu` as a module: `python -m vgpu`."""

import sys

from vgpu.cli import main

if __name__ == "__main__":
    sys.exit(main())
