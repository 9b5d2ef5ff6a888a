"""After training: the Python interface, recommendations, new items and new clients."""
