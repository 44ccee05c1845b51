"""Admission: takes jobs in, answers the HTTP API, owns the job's life cycle."""
