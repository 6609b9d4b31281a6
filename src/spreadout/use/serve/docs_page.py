"""`/docs`: the schema as a plain page. It loads nothing, so it works where no other host is reached."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

STYLE = "body{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}pre{overflow:auto}"


def docs_page(schema: Mapping[str, Any]) -> str:
    """Every path with what it does, takes and gives; the schema itself is at `/openapi.json`."""
    about = schema["info"]
    paths = schema["paths"].items()
    parts = [_operation(path, how, what) for path, ways in paths for how, what in ways.items()]
    title = f"{escape(about['title'])} {escape(about['version'])}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head><body><h1>{title}</h1><p>{escape(about.get('description', ''))} "
        'For programs: <a href="/openapi.json">/openapi.json</a>.</p>'
        f"{''.join(parts)}<h2>Schemas</h2>{_shown(schema.get('components', {}).get('schemas', {}))}"
        "</body></html>"
    )


def _operation(path: str, how: str, what: Mapping[str, Any]) -> str:
    head = f"<h2>{escape(how.upper())} {escape(path)}</h2><p>{escape(what.get('description', ''))}</p>"
    body = what.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    takes = "" if body is None else f"<h3>takes</h3>{_shown(body)}"
    answers = {code: _schema_of(answer) for code, answer in what.get("responses", {}).items()}
    return f"{head}{takes}<h3>answers</h3>{_shown(answers)}"


def _schema_of(answer: Mapping[str, Any]) -> Any:
    found = answer.get("content", {}).get("application/json", {}).get("schema", {})
    return found.get("$ref", "").rpartition("/")[2] or found or answer.get("description", "")


def _shown(value: Any) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"
