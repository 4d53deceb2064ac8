"""The demo: attention by a release's tarballs on virtual devices, compared with float64."""
