"""The error for a job file that is well-formed and cannot be right."""


class InvalidJob(ValueError):
    """A job file whose fields are well-formed and make no sense together, or to a cluster."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason
