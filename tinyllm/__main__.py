# Tangled from book/workshop/command.md
"""`python -m tinyllm` is the command `tinyllm`."""

import sys

from tinyllm.cli import main

if __name__ == "__main__":
    sys.exit(main())
