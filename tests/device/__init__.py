"""Programs for a machine with an NVIDIA GPU and PyTorch: the library's calls against float64, and their
speed."""
