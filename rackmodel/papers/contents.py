"""What is in the papers: every table and figure, by paper, as specs/papers says it."""

from __future__ import annotations

from pydantic import Field

from rackmodel.model.schema import Spec


class ItemSpec(Spec):
    """A table or a figure."""

    shows: str = Field(description="what it shows")
    why: str | None = Field(default=None, description="why no finding covers it")


class PaperSpec(Spec):
    """A paper."""

    title: str = Field(description="its title and authors")
    studies: list[str] = Field(description="the studies whose findings are of it")
    absent: str | None = Field(default=None, description="why an item may have no finding, where nothing else is said")
    items: dict[str, ItemSpec] = Field(description="'Table 1', 'Figure 2' → what it shows")


class PapersSpec(Spec):
    """The file."""

    name: str = Field(alias="papers", description="what the collection is called")
    seeds: dict[str, PaperSpec] = Field(description="number → paper")
