"""What an operator or a newcomer reads is plain English: documents, inventories, and the messages, descriptions and comments of the code.

DIALECT has the expressions that we do not use, and what to write instead. A page's blocks of code are not judged: they quote what the code
prints, and the code is judged itself.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.engine.commands import use_inventory, whole

ROOT = Path(__file__).resolve().parents[2]
DIALECT = {
    r"mend(s|ed|ing)?": "fix, repair, correct",
    r"anew": "again; made anew: recreated",
    r"affairs?": "is the affair of: is managed by",
    r"told": "said, reported, printed; all is told at once: all errors are reported at once",
    r"wants? a hand|in need of a hand": "needs manual repair",
    r"(put|puts|putting) (\w+ )?out": "evict",
    r"(take|takes|taken|took|taking) (\w+ )?up": "apply; the kubelet has not applied the manifest",
    r"in hand|in the hands of": "in progress",
    r"brought to (its|their) end": "finish",
    r"(go|goes|went) first": "eviction order; is evicted first",
    r"nothing burns": "no immediate danger",
    r"nobody's": "anonymous",
    r"wish(es)?": "data, desired state",
    r"strangers?": "unknown keys, other processes",
    r"signs? of life": "heartbeat",
    r"keeps? to (its|their) word": "still reverts what is not confirmed",
    r"fore(see|sees|seen|saw)": "predict",
    r"reckon(s|ed)?": "predict, count",
    r"for ever": "forever",
}
_SPOKEN = re.compile(rf"\b({'|'.join(f'({words})' for words in DIALECT)})\b", re.IGNORECASE)
# Words of a sentence in a message or a document; a value that is put in, and a span of code, is one.
LONGEST = 30
_SEMICOLON = re.compile(r"; (?=[^\W\d_]|`)")
_SHELL = re.compile(r"\$|\|\||&&|\bexec\b")
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
# The changelog's old entries stay as they are.
PROSE = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]
CODE = [*ROOT.glob("roles/**/*.py"), *ROOT.glob("deploys/*.py"), *ROOT.glob("inventories/**/*.py"), ROOT / "config.py"]
TEMPLATES = [path for path in ROOT.glob("templates/*") if path.is_file()]


def spoken(text: str) -> list[str]:
    return [found.group(0) for found in _SPOKEN.finditer(re.sub(r"\s+", " ", text))]


def prose(text: str) -> str:
    """A document without its blocks and spans of code, and without the targets of links."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", text)
    return re.sub(r"(?m)^    .*$|`[^`]*`|\]\([^)]*\)", "", text)


def literals_and_comments(text: str) -> Iterator[str]:
    """Of Python: its strings, docstrings too, without what is put into them, and its comments."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    yield " ".join(token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT)


def messages(text: str) -> Iterator[str]:
    """Of Python: its strings, with X for what is put into them; no docstrings, no shell."""
    tree = ast.parse(text)
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
        elif isinstance(node, ast.FormattedValue):
            skipped.add(id(node.format_spec))
    for node in ast.walk(tree):
        if id(node) in skipped or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        found = "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in parts)
        if not _SHELL.search(re.sub("`[^`]*`", "", found)):
            yield found


def heavy(text: str) -> list[str]:
    """The sentences that have too many words, or a chain of semicolons."""
    text = re.sub(r"`[^`]*`", "`X`", re.sub(r"\]\([^)]*\)", "]", text))
    sentences = re.split(r"(?<=[.?!])[)\]\"*_]*\s+|\n\n", text)
    return [one for one in sentences if len(_SEMICOLON.findall(one)) > 1 or len(re.findall(r"\S*[a-z]\S*|`X`|\0", one)) > LONGEST]


def parts(text: str) -> list[str]:
    """The paragraphs, list items and table cells of a document, without its blocks of code."""
    text = re.sub(r"(?ms)^ *```.*?^ *```|^    .*?$", "", text)
    found = re.split(r"\n\s*\n|\n(?= *(?:[-*#|]|\d+\. ))|(?<!\\)\|| · ", text)
    return [" ".join(one.split()) for one in found if one.strip()]


def found_in(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return spoken(prose(text))
    if path.suffix == ".py":
        return [word for one in literals_and_comments(text) for word in spoken(one)]
    return spoken(re.sub(r"(?s)\{\{.*?\}\}|\{%.*?%\}", "", text))


@pytest.mark.parametrize("path", [*DOCUMENTS, *CODE, *TEMPLATES], ids=lambda path: str(path.relative_to(ROOT)))
def test_plain_english(path: Path) -> None:
    assert not found_in(path), "DIALECT says what to write instead"


@pytest.mark.parametrize(
    "text", ["It wants\na hand.", "Mend it", "made anew", "the affair of x", "as was told", "puts pods out", "take it up"]
)
def test_dialect_is_found(text: str) -> None:
    assert spoken(text)


@pytest.mark.parametrize("text", ["amendment", "to put outside", "taken upstream", "renew", "the kubelet applies it", "goes firstly"])
def test_plain_words_pass(text: str) -> None:
    assert not spoken(text)


def test_code_in_a_document_is_not_judged() -> None:
    assert spoken(prose("a\n\n    mend\n\n```console\n$ mend\n```\n`mend` [x](mend.md)\nanew")) == ["anew"]


def test_strings_and_comments_of_code_are_judged() -> None:
    code = 'told = f"fix {told} anew"  # mend\n\n\ndef affair() -> None:\n    """It was told."""\n'
    assert sorted(word for one in literals_and_comments(code) for word in spoken(one)) == ["anew", "mend", "told"]


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_message_is_read_once(path: Path) -> None:
    found = [sentence for message in messages(path.read_text(encoding="utf-8")) for sentence in heavy(message)]
    assert not found, f"one fact a sentence: at most {LONGEST} words and one semicolon"


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_sentence_of_a_document_is_read_once(path: Path) -> None:
    found = [sentence for part in parts(path.read_text(encoding="utf-8")) for sentence in heavy(part)]
    assert not found, f"one fact a sentence: at most {LONGEST} words and one semicolon"


def test_heavy_sentences_are_found() -> None:
    assert heavy("a; b. c; d (e; 1 f). `g; h`; i") == [] == heavy("word " * LONGEST)
    assert heavy("Go on. a; b; `c`.") == ["a; b; `X`."] and heavy("word " * (LONGEST + 1)) and heavy("\0; a, b; c")


def test_messages_are_the_strings_without_docstrings_and_shell() -> None:
    code = 'def f():\n    """a"""\n    g(f"b {c!r:>{d}}")\n    return "sh $x; y"\n'
    assert list(messages(code)) == ["b \0"]


def test_a_document_has_parts() -> None:
    text = "a\nb\n\n    code; x; y\n- c;\n  d; e\n| f; g | h; i; j |\n```\nk\n```\n"
    assert parts(text) == ["a b", "- c; d; e", "f; g", "h; i; j"]
    assert [one for part in parts(text) for one in heavy(part)] == ["- c; d; e", "h; i; j"]


def test_every_message_of_the_code_can_be_pasted_as_it_was_typed() -> None:
    """No message of the code has --data before a key, or a bare deploys/NAME.py, where the operator has typed `daytwo`."""
    generated = {ROOT / "roles/engine/inputs/reference.py", ROOT / "roles/engine/pairs/reference.py"}  # documents
    try:
        use_inventory("prod.py", "daytwo")
        left = {
            (str(path.relative_to(ROOT)), text)
            for path in sorted((ROOT / "roles").glob("**/*.py"))
            if path not in generated
            for text in messages(path.read_text(encoding="utf-8"))
            if re.search(r"--data \w|(?<![\w/])deploys/[a-z_]+\.py", whole(text.replace("\0", "x")))
        }
    finally:
        use_inventory("INVENTORY")
    assert left == set()
