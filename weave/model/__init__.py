# Tangled from book/workshop/weave.md
"""What the book says: chapters, blocks, names, links. Nothing here makes HTML or runs anything."""
