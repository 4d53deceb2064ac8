"""A release on the GPU of its user: check, report, import (`docs/hardware.md`)."""
