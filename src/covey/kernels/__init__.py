"""Kernels for some machines: for a GPU in Triton, which comes with torch for CUDA, and for CPUs with AVX-512.

Whoever uses one does without where it is missing.
"""

import math

LOG2E = math.log2(math.e)  # exp is slow where it underflows, as for rows left out; exp2 is not
REGISTERS = 32  # numbers that exp2 takes at once on a CPU; those left over are rounded otherwise
