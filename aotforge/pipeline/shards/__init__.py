"""A build in pieces: shards of a plan's images and the runtime, each made alone; gathered, they are one undivided build.

`split` says which jobs a shard has, `archive` is a part's file format, `images` and `library` make and read the two kinds of parts,
`gather` proves that the parts are the whole plan and assembles the release from them.
"""
