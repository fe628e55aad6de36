"""Einsums fused: what lies between them stays in a buffer; tiles of divisors and of any size."""
