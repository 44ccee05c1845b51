"""Numbers as they travel: none is negative, infinite or no number at all where that makes no sense.

A decoder holds these limits; whoever makes a struct is not slowed down by them.
"""

from typing import Annotated

from msgspec import Meta

Time = Annotated[float, Meta(ge=-86_400, le=1e12)]
"""cluster seconds; a clock may be behind that of whoever counts from 0, and floats beyond are too coarse"""
Amount = Annotated[float, Meta(ge=0, le=1e30)]
Rate = Annotated[float, Meta(gt=0, le=1e30)]
"""what others are divided by"""
Fraction = Annotated[float, Meta(ge=0, le=1 + 1e-6)]
"""of a whole, with what adding up in floats may gain"""
Number = Annotated[float, Meta(ge=-1e30, le=1e30)]
WholeNumber = Annotated[int, Meta(ge=0, le=2**53)]
GpuCount = Annotated[int, Meta(ge=1, le=100_000)]
Index = Annotated[int, Meta(ge=0, le=100_000)]
"""of a GPU of a node"""
PlainLine = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)", max_length=400)]
Code = Annotated[int, Meta(ge=-(2**31), le=2**32)]
"""of an exit, or of a signal"""
Policy = Annotated[str, Meta(pattern=r"^[ -~]+$(?!\n)", max_length=400)]
"""how it is written: `shared/domain/policy_names.py`"""
Pattern = Annotated[int, Meta(ge=1, le=2)]
