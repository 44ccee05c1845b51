"""JSON Schema documents of all messages and file formats, made from the structs.

`python -m schemas.jsonschema` writes the files in `schemas/json/`; a test checks that they are up to date.
"""

from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

from schemas.cluster import ClusterFile, NodeFile
from schemas.events import Fact
from schemas.jobs import JobFile
from schemas.problems import SavedProblem, SolveResult
from schemas.questions import REPLIES, Asked
from schemas.results import RunResult
from schemas.samples import Reading
from schemas.scenarios import ScenarioFile
from schemas.settings import Settings

FOLDER = Path(__file__).parent / "json"

DOCUMENTS: dict[str, tuple[Any, ...]] = {
    "facts": Fact.__args__,
    "samples": Reading.__args__,
    "questions": Asked.__args__,
    "replies": tuple(REPLIES.values()),
    "job": (JobFile,),
    "cluster": (ClusterFile,),
    "node": (NodeFile,),
    "scenario": (ScenarioFile,),
    "settings": (Settings,),
    "result": (RunResult,),
    "problem": (SavedProblem,),
    "solution": (SolveResult,),
}
"""file name → the types it describes"""


def document(name: str) -> str:
    """The schema document as text: one type as itself, several as alternatives."""
    refs, components = msgspec.json.schema_components(DOCUMENTS[name], ref_template="#/$defs/{name}")
    top = refs[0] if len(refs) == 1 else {"anyOf": list(refs)}
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": components}
    for described in components.values():
        if "description" in described:
            described["description"] = cleandoc(described["description"])  # as Python 3.13 keeps it
    return msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=2).decode() + "\n"


def write() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in DOCUMENTS:
        (FOLDER / f"{name}.json").write_text(document(name))


if __name__ == "__main__":
    write()
