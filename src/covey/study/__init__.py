"""Many runs at a time, and everything that is shown: reports, papers' tables, attack matrices and tuning."""
