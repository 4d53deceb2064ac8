"""A release inside an installed PyTorch: links for the names that it was linked to, images beside them, and a way back."""
