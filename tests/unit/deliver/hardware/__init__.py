"""Reports of checks on hardware."""
