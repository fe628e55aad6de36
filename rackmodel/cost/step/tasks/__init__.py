"""A layer's tasks, priced: bytes on networks, operations inside accelerators, jobs on lanes, what the host and offload add."""
