"""What a drawing contains: its texts, and the result rows that its parts belong to."""

import xml.etree.ElementTree as ElementTree

from driftlaw.reports.document import Figure


def texts(figure: Figure) -> list[str]:
    """Return the texts of a drawing."""
    elements = ElementTree.fromstring(figure.svg).iter()
    return ["".join(element.itertext()) for element in elements if element.tag.endswith("text")]


def rows_of(figure: Figure) -> set[str]:
    """Return the result rows that lines, bars and texts of a drawing belong to."""
    rows = {element.get("data-row") for element in ElementTree.fromstring(figure.svg).iter()}
    return {row for row in rows if row is not None}
