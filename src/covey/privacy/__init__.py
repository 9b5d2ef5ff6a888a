"""Privacy mechanisms, one file per idea."""
