"""What no step is below, in arrays over plans and columns: seconds at least, joules and memory exactly."""
