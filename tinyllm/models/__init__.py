# Tangled from book/2-transformer/MS-L5-addition.md
"""Whole models: each is a package or a module."""
