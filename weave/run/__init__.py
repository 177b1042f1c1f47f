# Tangled from book/workshop/weave.md
"""What a page shows the result of: figures, sessions and labs, run in processes of their own and kept."""
