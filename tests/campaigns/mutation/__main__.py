"""`python -m tests.campaigns.mutation [MODULE...]`: measure modules, compare with the record or write it."""

import sys

from tests.campaigns.mutation.campaign import main

sys.exit(main(sys.argv[1:]))
