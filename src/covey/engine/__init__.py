"""Runs a round: the server side, the clients, the fleets between them, and secure sums."""
