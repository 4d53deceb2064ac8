"""Foundations: files and locks, manifests, progress, machine limits, git.

Input: paths and YAML text. Output: validated values, atomically written files. Imports `errors` and `rules`
only.
"""
