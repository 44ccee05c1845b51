"""A user learns from a page what an emulated job may train: the list there is the catalogue's."""

import re

from loadgen.catalogue.specs import shipped
from tests.paths import ROOT

LISTED = re.compile(r"`([a-z0-9-]+)`\s\(([a-z0-9,\s-]+)\)")


def test_the_page_of_scenarios_lists_every_model_with_its_data_sets() -> None:
    page = (ROOT / "docs/scenarios.md").read_text("utf-8")
    text = page.partition("The emulated world knows these models")[2].partition("\n\n")[0]
    listed = {(model, dataset) for model, sets in LISTED.findall(text) for dataset in re.split(r",\s", sets)}
    assert listed == set(shipped().models)
