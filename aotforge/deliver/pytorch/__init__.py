"""The PyTorch side of a release: the lines that make PyTorch's own build download it, and a server that offers it."""
