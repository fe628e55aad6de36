"""Loop nests in the roofline's place: searched, given or fused, and what of them a layer's clock and the store have to know."""
