"""Environment variables of our own that programs read; docs/tasks.md prints the table."""

VARIABLES: dict[str, str] = {
    "AOTFORGE_HOME": "folder of the environment and the cache (default: .aotforge of the checkout)",
    "AOTFORGE_PYTHON": "the Python of the environment (default: the first of 3.11 to 3.15 on PATH)",
    "AOTFORGE_CACHE": "cache folder (default: cache in AOTFORGE_HOME)",
    "AOTFORGE_STRICT": "1: a cache that other users can change is an error instead of a warning",
    "AOTFORGE_SIGNING_KEY": "Ed25519 key of releases and reports, a file or its text",
}
"""What each is for, with its default."""
