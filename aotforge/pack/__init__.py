"""Image packs: one directory below aotriton.images with its dispatch data. Format:
docs/image-pack-format.md.
"""

from aotforge.pack.inspect import cat_image, list_images
from aotforge.pack.read import OpenPack, check_pack, open_files, open_pack, read_pack
from aotforge.pack.show import listing_json, listing_text
from aotforge.pack.values import Compressor, ImagePack, PackedImage
from aotforge.pack.verify import verify_pack
from aotforge.pack.write import write_pack

__all__ = [
    "Compressor",
    "ImagePack",
    "OpenPack",
    "PackedImage",
    "cat_image",
    "check_pack",
    "list_images",
    "listing_json",
    "listing_text",
    "open_files",
    "open_pack",
    "read_pack",
    "verify_pack",
    "write_pack",
]
