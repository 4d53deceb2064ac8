"""Images on devices, without any."""
