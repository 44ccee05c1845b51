"""How long an exchange of gradients takes. Pure."""


def exchange_s(gradient_bytes: float, workers: float, bandwidth: float) -> float:
    """Seconds of a ring all-reduce (JPS, eq. 6). `bandwidth`: bytes/s that it achieves, r / 2.

    The paper sends 2 (K − 1) / K of the gradients over a link of rate r.
    """
    if workers <= 1 or gradient_bytes <= 0:
        return 0.0
    return (workers - 1) / workers * gradient_bytes / bandwidth
