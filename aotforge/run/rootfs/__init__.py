"""Root filesystems from locked Debian packages and wheels (docs/containers.md)."""
