"""A profile: what a framework overlaps, as data. It is named in every result that was priced under it."""

from __future__ import annotations

from pydantic import Field, field_validator

from rackmodel.model.schema import Spec


class Overlap(Spec):
    """Which collectives run beside compute, limited by data dependence alone."""

    weights: bool = Field(default=False, description="true: collectives on weights and their gradients run beside compute")
    activations: bool = Field(default=False, description="true: collectives on activations run beside compute (not priced yet)")

    @field_validator("activations")
    @classmethod
    def _priced(cls, value: bool) -> bool:
        if value:
            raise ValueError("overlap of collectives on activations is not priced yet; want false")
        return value


class ProfileSpec(Spec):
    """The file of a profile (specs/profiles)."""

    name: str = Field(alias="profile", description="the profile's name")
    overlap: Overlap = Field(default=Overlap(), description="what runs beside compute")
