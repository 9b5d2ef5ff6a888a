"""Kernels for a GPU in Triton, which comes with torch for CUDA; whoever uses one does without where it is missing."""

import math

LOG2E = math.log2(math.e)  # exp is slow where it underflows, as for rows left out; exp2 is not
