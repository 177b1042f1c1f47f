# Tangled from book/workshop/weave.md
"""Blocks, formulas, header facts and results as HTML, through an extension of Python-Markdown."""
