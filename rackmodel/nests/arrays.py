"""Names of the array types of this package: float64, int64 and bool arrays, and numbers that may be arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
AnyArray = NDArray[Any]
Number = float | Floats
