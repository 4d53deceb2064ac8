"""Steps: commands over input files, on this machine or in docker, podman or bubblewrap.

Input: a `Step` and a `RootFS`. Output: the step's files, or an error that names the limit it exceeded.
"""
