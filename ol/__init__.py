# Tangled from book/workshop/mutants.md
"""The exercise tool, and the data that it reads: header facts, contracts, mutants."""
