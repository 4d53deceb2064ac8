"""A static page of releases: downloads per chip with digests, what was verified, how to install, and the PyTorch matrix."""
