"""The `covey` program: `main.py` parses the command line, the commands are in the other files."""
