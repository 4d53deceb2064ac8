"""Steps in isolation: on the host, in docker, podman or bubblewrap.

Input: a `Step` (files, command, limits). Output: its output files, or an error that names the limit.
"""
