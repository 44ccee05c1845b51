"""What an idempotency key may be, for admission and for commands that send one."""

KEY_LENGTH_MAX = 200


def key_fault(key: str) -> str:
    """What is wrong with the key; empty: nothing."""
    if key.isascii() and key.isprintable() and 1 <= len(key) <= KEY_LENGTH_MAX:
        return ""
    return f"has to be 1 to {KEY_LENGTH_MAX} printable ASCII characters"
