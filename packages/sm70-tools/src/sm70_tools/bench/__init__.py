"""`sm70 bench`: checked, cold-cache measurements beside peers."""
