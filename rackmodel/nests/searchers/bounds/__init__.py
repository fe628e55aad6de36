"""What no mapping is below: convex programs over real sizes, cut between whole numbers, and tables of relaxed tiles."""
