# Tangled from book/workshop/command.md
"""`python -m tinyllm` is the command `tinyllm`."""

import sys

from tinyllm.cli import main

sys.exit(main())
