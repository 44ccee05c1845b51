"""Characters that a terminal obeys instead of showing them; users may have put some into a text. Pure."""

import re

CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""characters that control a terminal, end a line in a way of their own, or turn the direction of writing"""


def escaped(text: str) -> str:
    """The text with these characters as escapes of JSON, so that JSON stays the same; line breaks stay."""
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
