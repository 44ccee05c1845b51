"""How long an exchange of gradients takes. Pure."""


def exchange_s(gradient_bytes: float, workers: float, bandwidth: float) -> float:
    """Seconds of a ring all-reduce among K workers (JPS, eq. 6).

    The paper sends 2 (K − 1) / K of the gradients over a link of rate r; `bandwidth`, the bytes/s that an
    all-reduce achieves, is r / 2.
    """
    if workers <= 1 or gradient_bytes <= 0:
        return 0.0
    return (workers - 1) / workers * gradient_bytes / bandwidth
