"""Tiles of any size on a memory, a buffer and an array."""
