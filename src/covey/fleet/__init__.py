"""Where the clients are."""
