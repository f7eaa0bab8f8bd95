"""A good body for every route that takes one, with as many of its fields as go together."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "description": "d"}, "b": {"enum": ["x", "y"]}},
    "required": ["a"],
}
_TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": _SCHEMA}}
_CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": "b"}'}}
_SAMPLERS = {
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 3,
    "min_p": 0.1,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "seed": 7,
    "stop": ["zz"],
}
_OPENAI = {
    **_SAMPLERS,
    "model": "toy",
    "n": 2,
    "max_tokens": 2,
    "repetition_penalty": 1.1,
    "logit_bias": {"7": 1},
    "stop_token_ids": [3],
    "ignore_eos": False,
    "min_tokens": 1,
    "cache_salt": "s",
    "priority": 0,
    "user": "u",
    "return_token_ids": True,
    "cache_retention": [{"priority": 50, "ttl": 60, "start": 0, "end": 1}],
    "prompt_cache_key": "k",
}
_MESSAGES = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "n"},
    {"role": "assistant", "content": None, "tool_calls": [_CALL], "reasoning_content": "r"},
    {"role": "tool", "content": "result", "tool_call_id": "call_1"},
    {"role": "user", "content": "go on"},
]
_FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": _SCHEMA, "strict": True}}
_PIN = {"id": "p", "messages": _MESSAGES[:2], "prompt": None, "model": "toy", "cache_salt": "s"}
_MARK = {"type": "ephemeral", "ttl": "5m"}
_ANTHROPIC = {
    "model": "toy",
    "system": [{"type": "text", "text": "s", "cache_control": _MARK}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": _MARK}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "text", "text": "x"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": "b"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "is_error": False,
                    "content": [{"type": "text", "text": "r"}],
                }
            ],
        },
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": _SCHEMA}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "disabled"},
}
_CONTENTS = [
    {"role": "user", "parts": [{"text": "hi"}]},
    {
        "role": "model",
        "parts": [{"text": "x", "thought": True}, {"functionCall": {"name": "f", "args": {"a": "b"}}}],
    },
    {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"a": "b"}}}]},
]
_GEMINI_PROMPT = {
    "contents": _CONTENTS,
    "systemInstruction": {"parts": [{"text": "s"}]},
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "f",
                    "description": "d",
                    "parameters": {
                        "type": "OBJECT",
                        "properties": {"a": {"type": "STRING", "nullable": True, "minLength": "1"}},
                    },
                }
            ]
        }
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
}
_GEMINI = {
    **_GEMINI_PROMPT,
    "generationConfig": {
        "temperature": 0.5,
        "topP": 0.5,
        "topK": 3,
        "candidateCount": 1,
        "maxOutputTokens": 2,
        "stopSequences": ["zz"],
        "seed": 7,
        "presencePenalty": 0.5,
        "frequencyPenalty": 0.5,
        "responseLogprobs": True,
        "logprobs": 2,
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 0},
    },
    "safetySettings": [{"category": "x", "threshold": "y"}],
}
_GEMINI_JSON = {
    "contents": {"parts": {"text": "hi"}},
    "generationConfig": {
        "maxOutputTokens": 2,
        "responseMimeType": "application/json",
        "responseSchema": {
            "type": "OBJECT",
            "properties": {"a": {"type": "INTEGER", "maximum": 3}},
            "propertyOrdering": ["a"],
        },
    },
}
_CACHED = {
    **_GEMINI_PROMPT,
    "model": "models/toy",
    "contents": [{"role": "user", "parts": [{"text": "long " * 300}]}],
    "ttl": "5s",
    "displayName": "d",
}
_RESPONSE = {
    "model": "toy",
    "input": [
        {
            "type": "message",
            "role": "user",
            "content": [
                {
                    "type": "input_text",
                    "text": "hi",
                    "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"},
                }
            ],
        },
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "s"}],
            "content": [{"type": "reasoning_text", "text": "t"}],
            "encrypted_content": "sapwood1:aaaa",
        },
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "r"}]},
    ],
    "instructions": "i",
    "tools": [{"type": "function", "name": "f", "description": "d", "parameters": _SCHEMA, "strict": False}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["message.output_text.logprobs"],
    "metadata": {"a": "b"},
    "truncation": "auto",
    "max_output_tokens": 2,
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 3,
    "seed": 4,
    "top_logprobs": 2,
    "store": True,
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "implicit", "ttl": "30m", "prewarm": False},
    "cache_salt": "s",
    "priority": 0,
    "chat_template_kwargs": {"a": 1},
}
_DECISIONS = {
    "model": "toy",
    "input": [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "hi"}, {"type": "input_json", "data": {"a": 1}}],
        },
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ],
    "questions": [
        {"type": "predicate", "name": "p", "instructions": "yes?"},
        {
            "type": "choice",
            "instructions": "which?",
            "choices": [{"value": "a", "description": "d"}, {"value": True}],
        },
        {
            "type": "score",
            "instructions": "how?",
            "levels": [{"label": "a", "description": "d"}, {"label": "b"}],
        },
    ],
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit"},
    "cache_salt": "s",
    "priority": 0,
}
_GENERATE = {
    "text": ["a", "b"],
    "sampling_params": {
        **_SAMPLERS,
        "max_new_tokens": 2,
        "min_new_tokens": 1,
        "repetition_penalty": 1.1,
        "stop_token_ids": [3],
        "ignore_eos": False,
        "n": 1,
        "logit_bias": {"7": 1},
    },
    "rid": ["r1", "r2"],
    "extra_key": "k",
    "return_logprob": True,
    "logprob_start_len": 0,
    "top_logprobs_num": 2,
    "return_text_in_logprobs": True,
    "stream": False,
    "priority": 0,
}
_COMPLETION = {
    **_SAMPLERS,
    "prompt": ["a", [1, "b"]],
    "n_predict": 2,
    "repeat_penalty": 1.1,
    "logit_bias": [[7, 1.5], [8, False]],
    "ignore_eos": False,
    "n_probs": 2,
    "cache_prompt": True,
    "return_tokens": True,
    "timings_per_token": True,
    "return_progress": True,
    "response_fields": ["content", "timings/prompt_n"],
    "stream": False,
}
_OPTIONS = {**_SAMPLERS, "num_predict": 2, "repeat_penalty": 1.1, "num_ctx": 100}
_OLLAMA_CHAT = {
    "model": "toy",
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "",
            "thinking": "t",
            "tool_calls": [{"function": {"name": "f", "arguments": {"a": "b"}}}],
        },
        {"role": "tool", "content": "r", "tool_name": "f"},
    ],
    "tools": [_TOOL],
    "options": _OPTIONS,
    "format": _SCHEMA,
    "think": False,
    "logprobs": True,
    "top_logprobs": 2,
    "keep_alive": "5m",
    "stream": False,
}
_OLLAMA_GENERATE = {
    "model": "toy",
    "prompt": "hi",
    "system": "s",
    "context": [1, 2],
    "options": _OPTIONS,
    "raw": False,
    "stream": False,
}
_GEMINI_ROUTES: Mapping[str, tuple[Mapping[str, Any], ...]] = MappingProxyType(
    {
        "models/{id:path}:generateContent": (_GEMINI, _GEMINI_JSON),
        "models/{id:path}:streamGenerateContent": (_GEMINI,),
        "models/{id:path}:countTokens": (_GEMINI_PROMPT, {"generateContentRequest": _GEMINI_PROMPT}),
        "cachedContents": (_CACHED,),
        "cachedContents/{id}": ({"ttl": "60s"}, {"expireTime": "2100-01-01T00:00:00Z"}),
        "models/{id:path}": ({},),
    }
)

GOOD: Mapping[str, tuple[Mapping[str, Any], ...]] = MappingProxyType(
    {
        "/v1/chat/completions": (
            {
                **_OPENAI,
                "messages": _MESSAGES,
                "logprobs": True,
                "top_logprobs": 2,
                "tools": [_TOOL],
                "tool_choice": "auto",
                "chat_template_kwargs": {"shout": True},
            },
            {
                "messages": _MESSAGES[:2],
                "max_tokens": 2,
                "stream": True,
                "stream_options": {"include_usage": True},
                "response_format": _FORMAT,
            },
        ),
        "/v1/completions": (
            {**_OPENAI, "prompt": ["a", "b"], "echo": True, "logprobs": 2, "best_of": 3},
            {"prompt": [1, 2], "max_tokens": 2, "stream": True},
        ),
        "/v1/decisions": (_DECISIONS,),
        "/tokenize": (
            {"prompt": "a", "model": "toy", "add_special_tokens": True, "return_token_strs": True},
            {"messages": _MESSAGES, "tools": [_TOOL]},
        ),
        "/detokenize": ({"tokens": [1, 2], "model": "toy"},),
        "/v1/cache/pins": (_PIN,),
        "/v1/messages": (
            {
                **_ANTHROPIC,
                "max_tokens": 2,
                "stop_sequences": ["zz"],
                "temperature": 0.5,
                "top_p": 0.5,
                "top_k": 3,
                "metadata": {"user_id": "u"},
            },
            {
                "model": "toy",
                "max_tokens": 2,
                "stream": True,
                "messages": [{"role": "user", "content": "hi"}],
                "cache_control": _MARK,
            },
        ),
        "/v1/messages/count_tokens": (_ANTHROPIC,),
        "/generate": (
            _GENERATE,
            {"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 2, "regex": "a+"}, "stream": True},
        ),
        "/completion": (
            _COMPLETION,
            {"prompt": "a", "n_predict": 2, "stream": True, "grammar": 'root ::= "a"'},
        ),
        "/completions": (_COMPLETION, {"prompt": "a", "n_predict": 2, "json_schema": _SCHEMA}),
        "/api/chat": (
            _OLLAMA_CHAT,
            {"model": "toy", "messages": [{"role": "user", "content": "hi"}], "options": {"num_predict": 2}},
        ),
        "/api/generate": (_OLLAMA_GENERATE,),
        "/api/show": ({"model": "toy", "verbose": True},),
        "/v1/responses": (
            _RESPONSE,
            {
                "input": "hi",
                "stream": True,
                "max_output_tokens": 2,
                "store": False,
                "text": {"format": {"type": "json_schema", "name": "a", "schema": _SCHEMA, "strict": True}},
            },
        ),
        "/v1/responses/input_tokens": (_RESPONSE,),
        **{
            f"{version}/{route}": bodies
            for version in ("/v1", "/v1beta")
            for route, bodies in _GEMINI_ROUTES.items()
        },
    }
)
"""By the path of its route."""

BODILESS = frozenset(
    {
        "/flush_cache",
        "/open_session",
        "/close_session",
        "/reset_prefix_cache",
        "/ping",
        "/slots/{id}",
        "/v1/responses/{id}/cancel",
    }
)
"""Routes of POST that read no body."""
