"""Releases: assembly of packs and library, documents and signatures, and their reader."""
