"""Executors: the same step on this machine, in a Docker or podman container, or in a bubblewrap sandbox (docs/executors.md)."""
