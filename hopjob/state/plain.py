"""What a checkpoint may hold: tensors and plain types, which torch reads without running code.

In this way torch 1.13 cannot read floating-point numbers, so there they are written as text, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hopjob.state.rates import parts

PLAIN = (bool, int, float, complex, str, bytes)
FLOAT = "float in hexadecimal"
READS_FLOATS = int(torch.__version__.partition(".")[0]) > 1


def plain(value: object, where: str) -> object:
    """The value in plain types. Raises TypeError, which names the place (`where`) of any other type.

    Subclasses of plain types are converted too, since torch does not read them: numpy's float64, which a
    schedule that computes with numpy holds, is a subclass of float.
    """
    if value is None or isinstance(value, torch.Tensor):
        return value
    for kind in PLAIN:
        if isinstance(value, kind):
            return value if type(value) is kind else kind(value)  # type: ignore[arg-type]
    if isinstance(value, dict):
        return {plain(key, where): plain(one, f"{where}[{key!r}]") for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)(plain(one, where) for one in value)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    raise TypeError(f"{where} is a {type(value).__name__}: a checkpoint holds tensors and plain types alone")


def load(thing: Any, state: object) -> None:  # noqa: ANN401 - whatever has a state_dict
    """Have `thing` load the state. An attribute that was a special dict or list before is one again.

    A checkpoint holds plain ones. But torch's MultiStepLR counts its milestones in a Counter, and uses it so.
    """
    before = [(part, dict(vars(part))) for part in parts(thing) if hasattr(part, "__dict__")]
    thing.load_state_dict(state)
    for part, attributes in before:
        for name, special in attributes.items():
            if name in vars(part):
                vars(part)[name] = _as_before(special, vars(part)[name])


def _as_before(special: object, loaded: object) -> object:
    """What was loaded, in the special dict or list that held its like before."""
    if type(loaded) is dict and isinstance(special, dict) and type(special) is not dict:
        special.clear()
        special.update(loaded)
        return special
    if type(loaded) is list and isinstance(special, list) and type(special) is not list:
        special[:] = loaded
        return special
    return loaded


def packed(value: Any) -> Any:  # noqa: ANN401 - any plain value
    return value if READS_FLOATS else _mapped(value, _to_text)


def unpacked(value: Any) -> Any:  # noqa: ANN401 - any plain value
    return _mapped(value, _from_text)


def _to_text(value: object) -> object:
    return (FLOAT, value.hex()) if isinstance(value, float) else value


def _from_text(value: object) -> object:
    is_float = isinstance(value, tuple) and len(value) == 2 and value[0] == FLOAT  # noqa: PLR2004
    return float.fromhex(value[1]) if is_float else value  # type: ignore[index]


def _mapped(value: Any, change: Callable[[object], object]) -> Any:  # noqa: ANN401 - any plain value
    """`change` applied within containers. A dict of tensors alone stays as it is, with torch's metadata."""
    changed = change(value)
    if changed is not value:
        return changed
    if isinstance(value, dict):
        if all(isinstance(one, torch.Tensor) for one in value.values()):
            return value
        return {key: _mapped(one, change) for key, one in value.items()}
    if isinstance(value, list):
        return [_mapped(one, change) for one in value]
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        return tuple(_mapped(one, change) for one in value)
    return value
