# Tangled from book/workshop/weave.md
"""MkDocs' events: building, watching, pages that need no rendering, the PDF."""
