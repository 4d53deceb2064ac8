"""Executors: run a step on this machine, in docker, podman or bubblewrap (docs/executors.md)."""
