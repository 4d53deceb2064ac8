"""Images on a device of this machine: each in a process of its own, under a watchdog."""
