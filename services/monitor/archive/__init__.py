"""The archive: what streams may drop, kept in Parquet files before they do (ADR 28)."""
