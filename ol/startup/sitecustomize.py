# Tangled from book/workshop/ol.md
"""Imported by every Python that `ol run` starts."""

from ol import overlay

overlay.install()
