"""The stages in order: build, verify, release, reproduce, shards, CI jobs.

Input: a request (archs, profile, folders). Output: a report of what was built, and the release folder.
"""
