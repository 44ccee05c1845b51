"""Types of numbers in messages, with bounds: they exclude NaN and infinity, and mostly negative numbers.

Decoders check these bounds; constructing a struct does not, which keeps it fast.
"""

from typing import Annotated

from msgspec import Meta

MOST = 1e30
"""largest amount, rate or absolute number in a message"""

Time = Annotated[float, Meta(ge=-86_400, le=1e12)]
"""cluster seconds; below 0 if a machine's clock is behind that of the stack's start; bounded, since larger
floats are too coarse for seconds"""
Amount = Annotated[float, Meta(ge=0, le=MOST)]
Rate = Annotated[float, Meta(gt=0, le=MOST)]
"""above 0, since it is divided by"""
Fraction = Annotated[float, Meta(ge=0, le=1 + 1e-6)]
"""a share of a whole, with room for rounding"""
Number = Annotated[float, Meta(ge=-MOST, le=MOST)]
WholeNumber = Annotated[int, Meta(ge=0, le=2**53)]
Tally = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""a number of things, for which a store has 32 bits"""
GpuCount = Annotated[int, Meta(ge=1, le=100_000)]
Index = Annotated[int, Meta(ge=0, le=100_000)]
"""index of a GPU on its node"""
PlainLine = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)", max_length=400)]
Code = Annotated[int, Meta(ge=-(2**31), le=2**32)]
"""an exit code, or the number of a signal"""
Policy = Annotated[str, Meta(pattern=r"^[ -~]+$(?!\n)", max_length=400)]
"""a policy with its options; `shared/domain/policy_names.py` has the syntax"""
Pattern = Annotated[int, Meta(ge=1, le=2)]
"""1: data loading overlaps backward pass and update; 2: it does not"""
