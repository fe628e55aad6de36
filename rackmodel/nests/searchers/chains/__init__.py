"""Tiles of any size, small problems: every chain of tiles of every rank, joined by branch and bound."""
