"""Kernels for a GPU in Triton, which comes with torch for CUDA; whoever uses one does without where it is missing."""
