"""Builds on a Dask cluster: input is the jobs of a plan, output their images and verdicts.

Only modules that start or answer a cluster import dask; nothing of a local build imports this package.
"""
