"""The version of the package: on the ground, for answers that are kept on disk are kept by it."""

from __future__ import annotations

__version__ = "0.1.0"
