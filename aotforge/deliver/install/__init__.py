"""Installing a published release: what this machine needs of it, checked from the pinned root to the last byte (`docs/installing.md`)."""
