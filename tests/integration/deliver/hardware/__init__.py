"""Releases on virtual GPUs as an owner of a GPU checks them."""
