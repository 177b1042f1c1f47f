# Tangled from book/workshop/ol.md
"""`python -m ol`."""

import sys

from ol.cli import main

if __name__ == "__main__":
    sys.exit(main())
