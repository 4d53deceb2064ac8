"""Planning: which images a build needs and which call each one serves.

Input: kernel rules and manifests. Output: a `Plan` with every compile job and all dispatch data.
"""
