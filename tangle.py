#!/usr/bin/env python3
# Tangled from book/workshop/literate.md
"""Tangle the book that stands beside this file, or any other: python tangle.py --help."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))  # also under python -I

from literate.command import run

if __name__ == "__main__":
    run()
