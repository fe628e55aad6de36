"""Facts of kernels fitted to measured components: rows of single kernels go in, the numbers of a part and their held-out error come out."""
