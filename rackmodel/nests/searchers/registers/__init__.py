"""Matrix products on a memory, a buffer and an array of register files, tiles of any size."""
