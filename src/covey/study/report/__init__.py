"""The report of one run or of several side by side, as a page and in a terminal."""
