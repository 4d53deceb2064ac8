"""What people see while a build runs."""

from aotforge.ui.display import BuildDisplay, build_display
from aotforge.ui.progress import Progress, progress

__all__ = ["BuildDisplay", "Progress", "build_display", "progress"]
