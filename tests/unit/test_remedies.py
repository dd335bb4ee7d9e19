"""Every remedy has a test that performs it, or a reason why none does."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import remedies

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).resolve().parent.parent
SOURCES = TESTS.parent / "src" / "hatch_torch_ext"
_VERBS = (
    "add|allow|build|change|check|choose|compile|correct|create|cut|declare|delete|do|drop|export|fetch|free|get|give|"
    "go|import|include|install|keep|leave|let|link|list|make|mark|merge|move|name|pass|patch|pip|preload|publish|put|"
    "raise|reinstall|remove|rename|repair|repeat|replace|require|run|say|see|set|skip|start|take|tell|try|type|unpack|unset|"
    "update|upgrade|use|wait|write"
)
_VERB = f"{_VERBS}|{'|'.join(verb.capitalize() for verb in _VERBS.split('|'))}"
_REMEDY = re.compile(rf"(?:^|[.;:,] |, or | or |\(|, and | and )(?:{_VERB})\b")
SHORTEST = 12
"""Shorter texts, and those of one word, are not sentences."""


def messages(path: Path) -> Iterator[str]:
    """Yield the texts of a module that tell somebody to do something, help and documentation of options apart."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    passed: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr() | ast.JoinedStr():
                passed |= {id(child) for child in ast.iter_child_nodes(node)}
            case ast.keyword(arg="help" | "description") | ast.Call(func=ast.Attribute(attr="option")):
                passed |= {id(child) for child in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) not in passed and isinstance(node, (ast.Constant, ast.JoinedStr)):
            text = " ".join(_text(node).split())
            if len(text) >= SHORTEST and " " in text and _REMEDY.search(text):
                yield text


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(value) if isinstance(value, ast.Constant) else "{}" for value in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def performed() -> Iterator[str]:
    """Yield the words of messages whose remedies a test performs."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                yield from (words for mark in node.decorator_list for words in _words(mark))


def _words(mark: ast.expr) -> Iterator[str]:
    match mark:
        case ast.Call(func=ast.Attribute(attr="performs"), args=words):
            for each in words:
                yield ast.literal_eval(each)


def test_every_remedy_is_performed_or_says_why_not() -> None:
    """What a message says to do is in the mark of the test that does it; words that no message has are to go."""
    listed = [*performed(), *(words for rows in remedies.TOLD.values() for words in rows), *remedies.NO_REMEDIES]
    assert len(listed) == len(set(listed))
    found = {text: path.name for path in sorted(SOURCES.rglob("*.py")) for text in messages(path)}
    assert [f"{name}: {text}" for text, name in found.items() if not any(words in text for words in listed)] == []
    assert [words for words in listed if not any(words in text for text in found)] == []
