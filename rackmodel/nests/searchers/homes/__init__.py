"""Tensors at home in the cores of a memory, a fan and cores."""
