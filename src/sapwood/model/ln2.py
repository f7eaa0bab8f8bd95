"""ln 2 in two parts, as fdlibm cuts it: whole multiples of the first are exact in float64 (Cody and Waite 1980)."""

from __future__ import annotations

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10

PER_LN2 = 1.44269504088896338700
"""1 / ln 2."""
