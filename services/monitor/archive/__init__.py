"""The archive: copies messages into Parquet files before the streams drop them (ADR 28)."""
