"""How long a step takes, exactly (docs/clock.md): orders of passes, states of stages, waves, timelines and the critical path."""
