# Tangled from book/workshop/literate.md
"""The tangler: from the Markdown chapters of a literate book to its program, and back."""
