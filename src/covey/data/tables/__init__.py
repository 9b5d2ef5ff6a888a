"""Import of tables: files and data frames with one interaction per row."""
