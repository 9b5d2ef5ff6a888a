"""Studies of many runs: reports, papers' tables, attack matrices and tuning."""
