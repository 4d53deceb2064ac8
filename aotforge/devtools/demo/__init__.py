"""The demo: attention forward and backward computed by a release's tarballs on virtual devices, compared with float64."""
