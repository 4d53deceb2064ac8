"""Manifests: YAML files, read as validated models."""

from aotforge.manifests.loading import Manifest, line_of, load
from aotforge.manifests.models import (
    Architecture,
    Architectures,
    Profile,
    Profiles,
    load_architectures,
    load_profiles,
)

__all__ = [
    "Architecture",
    "Architectures",
    "Manifest",
    "Profile",
    "Profiles",
    "line_of",
    "load",
    "load_architectures",
    "load_profiles",
]
