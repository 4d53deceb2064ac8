"""Execution of CPU images by this machine's processor, under guard pages."""
