"""The mapspace of one einsum on one machine by number: tiles, parts, orders, stored tensors, and what a word costs."""
