"""The checks of a release, one module per subject."""
