"""Shared caches: input is a store with a signed index, output its verified objects."""
