"""Publication under a signed index (TUF) in a folder or S3.

Input: a release folder and signing keys. Output: immutable objects in a store, and the verified index for
readers.
"""
