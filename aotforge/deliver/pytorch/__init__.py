"""Lines that make PyTorch's own build download a release, and a server that offers it."""
