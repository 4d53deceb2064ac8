"""Installation of a published release, checked from the root of trust on (`docs/installing.md`)."""
