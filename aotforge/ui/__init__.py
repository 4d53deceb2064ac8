"""What people see while a build runs."""

from aotforge.ui.progress import Progress, progress

__all__ = ["Progress", "progress"]
