"""Outcomes as statistics, tables, pictures, one document, and Parquet files."""
