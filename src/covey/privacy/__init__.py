"""Privacy: noise that protects, one file per idea."""
