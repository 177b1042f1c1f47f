# Tangled from book/workshop/weave.md
"""What a page shows the result of: cells, figures and sessions, run in processes of their own and kept."""
