"""Drop-in of a release into an installed PyTorch: links and images in torch/lib, and undoing it."""
