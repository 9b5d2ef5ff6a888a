"""Covey: federated recommendation, and what it costs in accuracy, privacy, traffic and under attack."""

import os

os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")  # matrix products with the same bits wherever they stand in memory

__version__ = "0.1.0"
