"""AMD's own AOTriton: its images from a checkout of it, and its library's calls on the virtual GPU.

Input: a checkout of ROCm/aotriton, which is run and never changed. Output: a folder with its image packs.
"""
