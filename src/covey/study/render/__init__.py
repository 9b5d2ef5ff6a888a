"""The rendering kit: texts, numbers, tables, charts and pages."""
