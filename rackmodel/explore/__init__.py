"""`rackmodel explore`: a page of this computer alone, whose numbers one moves and whose answers come as they move."""
