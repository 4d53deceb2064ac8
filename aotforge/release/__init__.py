"""Releases: assembly, documents and signatures.

Input: image packs with verdicts and the library. Output: archives, sums, SBOM, provenance, record.
"""
