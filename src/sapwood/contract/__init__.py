"""What each provider promises about prompt caching, beside what was physically reused. Pure; time is an argument."""

from __future__ import annotations

from sapwood.contract.billing import Billing, Written, implicit_billing
from sapwood.contract.block import LEVELS, Block
from sapwood.contract.diagnosis import Diagnoses, Finding, Imprint, imprint
from sapwood.contract.entries import Limits
from sapwood.contract.ledger import Ledger, Plan
from sapwood.contract.profiles import (
    ANTHROPIC,
    DEEPSEEK,
    GEMINI,
    GEMINI_EXPLICIT,
    OPENAI,
    OPENAI_BREAKPOINTS,
    Breakpoints,
    Explicit,
    Implicit,
    Markers,
    Profile,
    Steps,
    seconds_of,
)

__all__ = [
    "ANTHROPIC",
    "DEEPSEEK",
    "GEMINI",
    "GEMINI_EXPLICIT",
    "LEVELS",
    "OPENAI",
    "OPENAI_BREAKPOINTS",
    "Billing",
    "Block",
    "Breakpoints",
    "Diagnoses",
    "Explicit",
    "Finding",
    "Implicit",
    "Imprint",
    "Ledger",
    "Limits",
    "Markers",
    "Plan",
    "Profile",
    "Steps",
    "Written",
    "implicit_billing",
    "imprint",
    "seconds_of",
]
