# Tangled from book/workshop/ol-authors.md
"""For those who write the course: what makes the mutants of a grade."""
