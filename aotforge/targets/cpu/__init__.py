"""x86-64 processors as a vendor of images. The compiler is `ttcpu`."""
