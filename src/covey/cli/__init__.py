"""Sub-commands of the `covey` program, one file each."""
