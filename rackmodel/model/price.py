"""What a level costs in money: what one instance is bought for, or what it takes to have its chips made, and what it draws at work."""

from __future__ import annotations

from pydantic import Field, PositiveInt, model_validator

from rackmodel.model.schema import Spec
from rackmodel.units import Dollars, Watts


class MaskSet(Spec):
    """Photomasks of chips that share layers and have layers of their own."""

    set_usd: Dollars = Field(alias="set", description="masks of one chip, every layer")
    own_usd: Dollars = Field(alias="own", description="of them, the layers that differ from chip to chip and with an update")
    designs: PositiveInt = Field(default=1, description="chips that differ")

    @model_validator(mode="after")
    def _inside(self) -> MaskSet:
        if self.own_usd > self.set_usd:
            raise ValueError("own: the layers of one chip alone cannot cost more than its set")
        return self


class Engineering(Spec):
    """What it takes once to have a chip made, however many are."""

    masks: MaskSet | None = Field(default=None, description="photomasks")
    other_usd: Dollars = Field(default=0.0, alias="other", description="the rest of the first tape-out: wafers, test, packaging, tools, IP")
    respin_usd: Dollars = Field(default=0.0, alias="respin", description="the rest of an update: wafers, test, packaging")


class LevelCost(Spec):
    """Money of one instance of a level, without the levels below."""

    price_usd: Dollars = Field(default=0.0, alias="price", description="what one instance is bought for")
    engineering: Engineering | None = Field(default=None, description="non-recurring: what it takes once to have its chips made")
    power_w: Watts | None = Field(
        default=None, alias="power", description="drawn at work by one instance; absent = its kernels' power limit, else its static power"
    )
