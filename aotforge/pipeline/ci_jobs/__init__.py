"""Continuous integration as data: jobs, effects of changes, the workflow, summaries, a local runner.

Input: manifests/ci.yaml, plans, a git revision. Output: a job matrix, `.github/workflows/ci.yml`.
`require` runs on a bare runner: only the standard library is imported here.
"""
