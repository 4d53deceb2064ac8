"""Environment variables of our own that programs read; docs/tasks.md prints the table."""

VARIABLES: dict[str, str] = {
    "AOTFORGE_HOME": "folder of the environment and the cache (default: .aotforge of the checkout)",
    "AOTFORGE_PYTHON": "Python that the environment is made with (default: 3.11 to 3.15 on PATH)",
    "AOTFORGE_CACHE": "cache folder (default: cache in AOTFORGE_HOME)",
    "AOTFORGE_STRICT": "1: a cache that other users can change is an error instead of a warning",
    "AOTFORGE_SOURCES": "folders and URLs with packages and source archives, for machines without a network",
    "AOTFORGE_CACHE_FROM": "shared cache to read from",
    "AOTFORGE_FROM": "place of releases, for install",
    "AOTFORGE_ROOT": "root of trust of that place, a file",
    "AOTFORGE_KEYS": "folder of the keys that sign its index",
    "AOTFORGE_SIGNING_KEY": "Ed25519 key of releases and reports, a file or its text",
    "AOTFORGE_VIRTUAL": "virtual HIP: key=value,... (docs/virtual-gpu-tools.md)",
    "AOTFORGE_ASM": "virtual HIP: assembly texts, folders and archives joined by colons",
    "TRITON_CPU_BACKEND": "1: Triton compiles for the CPU",
    "AOTFORGE_CPU_LEVEL": "a lower level of x86-64 than the processor's",
    "AOTRITON_LOG": "library: off, error, warn, info or debug on standard error",
    "AOTRITON_IMAGES_DIR": "library: folder of image packs (default: beside the library)",
    "AOTFORGE_PARTIAL_PACK": "library: 1 permits packs that do not serve every call",
    "AOTFORGE_ATTENTION": "attention package: 0 loads nothing, 1 also without a GPU",
}
"""What each is for, with its default."""
