"""Pooled baselines: models trained on all users' data on one machine, as floors and ceilings."""
