"""Serving: steps of an inference engine, priced by the one engine, and what follows from them in a steady state or over a trace."""
