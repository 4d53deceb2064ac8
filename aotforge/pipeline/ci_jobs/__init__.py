"""Continuous integration as data: jobs from the manifests (`jobs`), only those a change can affect (`changes`), printed for GitHub and
GitLab (`matrix`), the workflow written from its source (`workflow`), any job run on this machine (`run`), its summary (`summary`).

`require` runs on a bare runner: nothing but the standard library is imported here.
"""
