"""The three steps of aggregation: group clients, combine their uploads, step the server's model."""
