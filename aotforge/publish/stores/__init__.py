"""Places of releases behind one interface: folders and S3 to publish to, these and HTTP to read from."""
