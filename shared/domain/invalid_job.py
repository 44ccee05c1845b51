"""The error for a job file that is well-formed but cannot be right."""


class InvalidJob(ValueError):
    """A job file whose fields are well-formed but make no sense together, or on this cluster."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason
