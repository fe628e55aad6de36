"""Tiles of any size as rows of whole numbers: counts and costs of many at once, draws and steps to better ones."""
