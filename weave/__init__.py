# Tangled from book/workshop/weave.md
"""Weaving: the book's Markdown into the pages of the site. Not part of the package that is installed."""
