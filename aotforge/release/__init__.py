"""Releases: assembly, documents and signatures.

Input: image packs with verdicts and the built library. Output: a folder of archives, sums, SBOM, provenance,
record.
"""
