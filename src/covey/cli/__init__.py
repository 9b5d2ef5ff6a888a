"""The `covey` program: `main.py` parses the command line, every command is one file."""
