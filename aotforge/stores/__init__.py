"""Where releases are kept: folders and S3 to publish to, and these and HTTP to read from, behind one interface."""

from aotforge.stores.open import open_reader, open_store, printable
from aotforge.stores.values import Content, Fault, Guarantees, Reader, Store, StoreFault, content_size

__all__ = [
    "Content",
    "Fault",
    "Guarantees",
    "Reader",
    "Store",
    "StoreFault",
    "content_size",
    "open_reader",
    "open_store",
    "printable",
]
