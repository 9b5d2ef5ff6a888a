"""How results are shown: wording, numbers, tables, plots and pages."""
