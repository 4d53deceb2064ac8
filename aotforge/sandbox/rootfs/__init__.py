"""Containers: locked Debian packages and wheels in, root filesystems with a fixed digest out (docs/containers.md)."""
