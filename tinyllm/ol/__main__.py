# Tangled from book/workshop/ol.md
"""`python -m tinyllm.ol`."""

import sys

from tinyllm.ol.cli import main

if __name__ == "__main__":
    sys.exit(main())
