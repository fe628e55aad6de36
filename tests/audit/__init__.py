"""Adversaries of the whole: random spaces whose proofs are attacked, mutated inputs, changes whose effect is known (`make audit`)."""
