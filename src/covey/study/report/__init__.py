"""The report of a run, and of several side by side: one page that opens from disk."""
