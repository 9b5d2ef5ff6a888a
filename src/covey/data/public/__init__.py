"""Public datasets: their registry, their formats, and how they are downloaded and checked."""
