"""Formats for models that bring no chat template, chosen by the control tokens that their vocabulary has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DefaultTemplate:
    """`source` is Jinja; it is the one to take where the vocabulary has `marker` as a control token."""

    name: str
    marker: str
    source: str


CHATML = DefaultTemplate(
    "ChatML",
    "<|im_start|>",
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
)

GEMMA = DefaultTemplate(
    "Gemma's format",
    "<start_of_turn>",
    "{{ bos_token }}{% for message in messages %}"
    "{% set role = 'model' if message['role'] == 'assistant' else 'user' %}"
    "{{ '<start_of_turn>' + role + '\\n' + message['content'] + '<end_of_turn>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
)
"""It knows no system: such a message is a turn of the user's."""


def default_template(control_tokens: Iterable[str]) -> DefaultTemplate:
    """ChatML where no other format's marker is there."""
    known = frozenset(control_tokens)
    return next((row for row in (CHATML, GEMMA) if row.marker in known), CHATML)
