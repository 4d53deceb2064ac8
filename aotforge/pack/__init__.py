"""Image packs (`docs/image-pack-format.md`).

Input: a plan and its images. Output: an `ImagePack`, one directory below `aotriton.images`; and readers of
untrusted packs.
"""
