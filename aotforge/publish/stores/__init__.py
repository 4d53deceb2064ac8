"""Where releases are kept: folders and S3 to publish to, and these and HTTP to read from, behind one interface."""
