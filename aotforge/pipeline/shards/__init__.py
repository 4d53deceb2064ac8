"""Shards of a build: images of a plan and the library, each made alone and merged into one release.

Input: a build request. Output: shard files; from all of them, the release of the undivided build.
"""
