"""Faster kernels for some machines: GPUs (in Triton) and CPUs with AVX-512.

They are optional: their callers compute the same with torch where a kernel is not available.
"""

import math

LOG2E = math.log2(math.e)  # exp is slow where it underflows, as for excluded rows; exp2 is not
REGISTERS = 32  # numbers that exp2 computes at once on a CPU; a remainder is rounded differently
