"""Public datasets: where they come from, their formats, and how they are downloaded and checked."""
