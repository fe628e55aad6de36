"""Published measurements beside what the engine predicts: rows are read, priced, scored."""
