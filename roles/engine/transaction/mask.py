"""Masks secrets in text for people: a part of its hash replaces each secret, and the text around it stays. Pure.

This module says what a secret is, and finds secrets in text without structure, such as a log. For files, see mask_files.

A masked value reads `<masked sha256:0123abcd>`: the first 8 hex digits of the sha256 of its UTF-8 bytes. Two values look
different, so a plan can be read and approved; the same value looks the same everywhere. If it is unclear where a secret
ends, more is masked rather than less.

Masking is idempotent: masked text does not change.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from roles.engine.bounds import read_json

_MASK = r"<masked\ sha256:[0-9a-f]{8}>"
MASKED = re.compile(_MASK, re.VERBOSE)

# Parts of a name, without the separators between its words. Anywhere in a name they make its value a secret ...
_PARTS = (
    r"(?:passw(?:or)?ds?|passphrases?|secrets?|tokens?|credentials?|apikeys?|privatekeys?|accesskeys?|certificatekeys?|encryptionkeys?"
    r"|keydata|urlheaders?)"
)
_HOLDS_SECRET = re.compile(_PARTS)
# ... in prose only at its end: `token: x`, but not `token-cleaner: started`.
_ENDS_SECRET = re.compile(_PARTS + r"\Z")
# These count only as the last word: `auth=x`, but not `authorization-mode=RBAC`.
_LAST_SECRET = frozenset({"auth", "authorization", "bearer"})
# Too short to count by themselves: `3 passed, pass=3`, `PWD=/root`.
_LAST_OF_SEVERAL = frozenset({"pass", "pwd"})
# Names with these endings describe a secret but do not hold it: a file with tokens, the lifetime of a token, the name of a Secret.
_ABOUT = re.compile(
    r"(?:.*(?:file|path|dir)s?|.*ttl|directory|folder|(?:kube)?config(?:s|uration)?|refs?|names?|namespaces?|modes?|policy|policies|strategy"
    r"|types?|kinds?|class|expiration|expiry|expires|lifetime|age|seconds|minutes|hours|duration|timeout|period|interval|delay|backoff"
    r"|retries|syncs|counts?|size|length|limit|max|min|issuers?|audiences?|ids?|version|ur[il]s?|endpoints?|hosts?|server|ports?|address"
    r"|providers?|plugins?|methods?|algorithm|alg|format|groups?|scopes?|usages?|labels?|annotations?|attributes?|webhook|lookup|failure"
    r"|enabled?|required?|reviews?|reviewer|verification|validation|projection|rotation|generation|controller|manager|requests?|volumes?"
    r"|mounts?|store|status|state|phase|reason|message|errors?|errs?|events?|prompt|stdin|cache|qps|burst|driver|authenticator|authorizer)\Z"
)
# Switches without a value: the next word is not their value.
_SWITCH = frozenset({"use", "same", "no", "ask", "enable", "disable", "allow", "anonymous", "require", "skip"})
# Go types in messages of client-go: `failed to list *v1.Secret: ...`; settings of systemd that name a file.
_NO_SECRET = re.compile(r"(?:.*\.)?v[0-9]\w*\.Secret(?:List)?|(?:Load|Import)Credential(?:Encrypted)?")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Values that hide nothing. The name of a gate in a list may look like that of a secret: `CSIServiceAccountTokenSecrets=true,Other=false`.
PLAIN = re.compile(r"(?:true|false|null|nil|<nil>|~|)", re.IGNORECASE)
_PLAIN_IN_LIST = re.compile(r"""(?:true|false)(?:,[A-Za-z]\w*=|\|(?:true|false)|[,.:;)\]}]*(?:[\s"'\\]|\Z))""", re.IGNORECASE)
_PEM = r"-----BEGIN\ (?:[A-Z0-9]+\ )*PRIVATE\ KEY(?:\ BLOCK)?-----(?:\\[nr]|\s)*+"
_PEM_BODY = r"""(?:(?!-----)[\s\S])*+(?=-----END)
        # Cut off: as far as it looks like a key.
        |[A-Za-z0-9+/]{16,}=*(?:(?:\\[nr]|\s)++[A-Za-z0-9+/]{16,}=*)*(?:(?:\\[nr]|\s)+[A-Za-z0-9+/]+=*(?=[ \t]*$))?"""
PRIVATE_KEY = re.compile(rf"(?P<head>{_PEM})(?P<body>{_PEM_BODY})", re.VERBOSE | re.MULTILINE)
_FOUND = re.compile(
    rf"""
    (?P<mask>{_MASK})
    | (?P<pem64>LS0tLS1CRUdJTi[A-Za-z0-9+/]+=*)
    # Also the JSON of a registry's credentials in base64.
    | (?<![A-Za-z0-9+/])(?P<jwt>eyJ[A-Za-z0-9_+/-]{{12,}}=*(?:\.[A-Za-z0-9_=-]+)*)
    | (?<![A-Za-z0-9_])(?<![A-Za-z0-9_][.-])(?![0-9]+\.[0-9]+(?![a-z]))
      (?P<bootstrap>[a-z0-9]{{6}}\.[a-z0-9]{{16}})(?![A-Za-z0-9_-]|\.[A-Za-z0-9])
    | ://[^\s/?\#@:"]*:(?P<password>(?:{_MASK}|[^\s/?\#"])+)@
    # Not `bearer authentication`: it must have more than letters.
    | (?<!\w)[Bb]earer[ ]+(?![A-Za-z]+(?![\w.~+/-]))(?P<bearer>[\w.~+/-]{{8,}}=*)
    | (?<![\w./-])(?=[\w./-]*?(?i:pass|pwd|secret|token|cred|auth|key|bearer|header))(?P<key>[\w./-]+)
    """,
    re.VERBOSE | re.MULTILINE,
)
_SEPARATOR = re.compile(r"[ \t]*(?::=|=>|={1,2}|:)[ \t]*")
_FLAG = re.compile(r"--.*|-[A-Za-z]|-v+|", re.DOTALL)
_FLAG_NAME = re.compile(r"--?[A-Za-z][\w.-]*")
_NEXT_WORD = re.compile(r"[ \t]+(?!--|-[A-Za-z](?:\s|\Z)|-v+(?:\s|\Z))(?=\S)")
# The next item of a list of arguments: in quotes, in brackets, or on its own line in YAML.
_NEXT_QUOTED = re.compile(r"""[ \t]*,\s*(?=\\*["'](?!-))""")
_NEXT_IN_FLOW = re.compile(r"[ \t]*,[ \t]*(?=[^\s-])")
_NEXT_LINE = re.compile(r"""["']?[ \t]*\n[ \t+-]*-[ \t]+(?=[^\s"'-]|["'][^-])""")
_SCHEME = re.compile(r"(?:Bearer|Basic|Token|Negotiate|ApiKey)[ \t]+(?=\S)", re.IGNORECASE)
# Possible characters before the first key of a line: of a diff, a comment, a list.
_LEAD = re.compile(r"[ \t#;+?-]*")
_QUOTE = re.compile(r"""\\*["']""")
_SINGLE_QUOTED = re.compile(r"'(?:''|[^'\n])*'")
_LIST = re.compile(r"""\[[ \t]*((?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[^\[\]{}"'\n])*?)[ \t]*\]""")
_BLOCK = re.compile(r"[|>][-+0-9]*[ \t]*(?:#.*)?$", re.MULTILINE)
# A row of backslashes is looked at once: whoever writes it may write any number.
_BARE = re.compile(rf"""(?:{_MASK}|\\*+["'](?=\w)|\\++(?!["'])|[^\s"'\\])+""", re.VERBOSE)
_BARE_IN_QUERY = re.compile(rf"""(?:{_MASK}|[^\s"'&\#;])+""", re.VERBOSE)
_BARE_IN_FLOW = re.compile(rf"""(?:{_MASK}|[^,\[\]{{}}"\n])+""", re.VERBOSE)
_REST = re.compile(r"(?:(?![ \t]+#).)*")
_SHELL_TAIL = re.compile(rf"""(?:{_MASK}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\\.|[^\s"'\\])*""", re.VERBOSE)
_NAME = r"""\\*["']?[\w./-]+\\*["']?[ \t]*:"""
_MAP = re.compile(rf"\{{[ \t]*(?:\}}|$|{_NAME})", re.MULTILINE)
_NO_PROSE = re.compile(rf"[\[{{#-]|{_NAME}(?:\s|$)", re.MULTILINE)

# A data key and its value in JSON or YAML, as pyinfra's --data has it, or text of several lines.
_DATA = re.compile(r"(?:--data=)?[A-Za-z]\w*=(?=\s*[\[{]|[^\n]*\n)")
# The field of data that is the content of a file.
_CONTENT = re.compile(r"content|\n")

SecretSpan = tuple[int, int]


def mask_text(text: str) -> str:
    """Mask secrets in any text, one line or several: journals, logs, errors, command lines, YAML, INI.

    By name: values of `KEY=value`, `key: value`, `"key": "value"`, `--key value` (also as two items of a list), if the key has a
    word such as token, password, secret, credential, api-key, private-key or ends in auth. Not if it names a file or a setting
    (`--token-auth-file`, `tokenTTL`, `secretName`), and never true, false and null. By format: JWTs, kubeadm's bootstrap tokens
    (cmd/kubeadm/app/apis/bootstraptoken), passwords in URLs, bearer tokens, private keys in PEM and its base64.
    """
    return settled(_masked_spans, text)


def mask_command(argv: Sequence[str]) -> list[str]:
    """Mask a command line, word by word: the whole value of `key=value` and `--key value` if the key names a secret."""
    shown: list[str] = []
    expected = False
    for word in argv:
        shown.append(_hidden(word) if expected and not _FLAG.fullmatch(word) else _command_word(word))
        expected = _FLAG_NAME.fullmatch(word) is not None and is_secret(word) and not _is_switch(word)
    return shown


def settled(show: Callable[[str], str], text: str) -> str:
    """Mask until nothing changes. It ends, since each change removes characters that are not in a mask."""
    while (shown := show(text)) != text:
        text = shown
    return text


def _hidden(value: str) -> str:
    return value if PLAIN.fullmatch(value) else mask(value)


def mask(value: str) -> str:
    """The replacement for a value that is masked completely."""
    if MASKED.fullmatch(value) or not value:
        return value
    try:
        data = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a surrogate pair, from JSON
        data = value.encode("utf-8", "surrogatepass")
    return f"<masked sha256:{hashlib.sha256(data).hexdigest()[:8]}>"


def _words(key: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(key.rpartition("/")[2])]


def is_secret(key: str, prose: bool = False) -> bool:
    """True if a value with this name is a secret. In prose the name must end like that of a secret."""
    words = _words(key)
    if not words or _NO_SECRET.fullmatch(key):
        return False
    if words[-1] in _LAST_SECRET or (words[-1] in _LAST_OF_SEVERAL and len(words) > 1) or words[-2:] == ["secret", "id"]:
        return True
    # For example discovery-token-ca-cert-hash, the hash of a public key.
    if _ABOUT.match(words[-1]) or (words[-2:-1] == ["cert"] and words[-1] in ("hash", "hashes")):
        return False
    return (_ENDS_SECRET if prose else _HOLDS_SECRET).search("".join(words)) is not None


def behind_scheme(name: str, text: str, start: int) -> int:
    """The start of the secret in a value that begins at `start`: after `Bearer ` in an Authorization."""
    named = {*_words(name)[-1:]} & {*_LAST_SECRET, "token", "header"}
    return scheme.end() if named and (scheme := _SCHEME.match(text, start)) else start


def _is_switch(key: str) -> bool:
    return _words(key)[0] in _SWITCH


def _command_word(word: str) -> str:
    """One word of a command line. `--data=password=x` is also read as `password=x`; data in JSON by its structure."""
    if data := _DATA.match(word):
        return data[0] + _shown_data(word[data.end() :])
    rest = word
    while match := re.match(r"([\w./-]+)=", rest):
        rest = rest[match.end() :]
        if is_secret(match[1]) and not _PLAIN_IN_LIST.match(rest):
            return word.removesuffix(rest) + _hidden(rest)
        if not match[1].startswith("-"):
            break
    return mask_text(word)


def _shown_data(text: str) -> str:
    """The value of a data key: without contents of files, whatever they are; unchanged if it holds none and no secret."""
    try:
        whole = read_json(text)
    except ValueError:
        return mask(text) if _CONTENT.search(text) else mask_text(text)
    shown = _shown_json(whole, "")
    return text if shown == whole else json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


def _shown_json(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: _shown_json(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_shown_json(one, key) for one in value]
    if not isinstance(value, str):
        return mask(str(value)) if is_secret(key) and isinstance(value, int | float) and not isinstance(value, bool) else value
    if _CONTENT.fullmatch(key) or "\n" in value or is_secret(key):
        return _hidden(value)
    return mask_text(value)


def mask_keys(text: str) -> str:
    """Mask only private keys."""
    return PRIVATE_KEY.sub(_key_body, text)


def _key_body(match: re.Match[str]) -> str:
    # Without the line end before -----END, also if written as \n, and without the sign of a diff.
    body = re.sub(r"\n[+-]\Z", "", match["body"])
    while (shorter := body.rstrip().removesuffix("\\n").removesuffix("\\r")) != body:
        body = shorter
    return match["head"] + mask(body) + match["body"][len(body) :]


def _masked_spans(text: str) -> str:
    # First, so that no other name or value matches its first line.
    text = mask_keys(text)
    shown: list[str] = []
    done = position = 0
    while match := _FOUND.search(text, position):
        span = _secret(match, text)
        if span is None:
            position = match.end()
            continue
        start, end = span
        shown += (text[done:start], mask(text[start:end]))
        done = position = end
    return "".join(shown) + text[done:]


def _secret(match: re.Match[str], text: str) -> SecretSpan | None:
    kind = match.lastgroup or ""
    if kind == "key":
        return _value_of_key(_Key(text, *match.span(kind)))
    if not match[kind] or (kind == "pem64" and not _is_private_key(match[kind])):
        return None
    start, end = match.span(kind)
    return (start, end) if start < end else None


def _is_private_key(encoded: str) -> bool:
    """True for the base64 of a PEM block with a private key. Certificates begin the same way."""
    head = encoded[:64].rstrip("=")
    return b"PRIVATE KEY" in base64.b64decode(head[: len(head) // 4 * 4])


class _Key:
    """A name in a text, and its surroundings."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text, self.name, self.end = text, text[start:end], end
        self.start = start
        if text[start - 1 : start] in ('"', "'"):
            self.start -= 1
            while text[self.start - 1 : self.start] == "\\":
                self.start -= 1
        quote = text[self.start : start]
        self.quoted = bool(quote) and text.startswith(quote, end)
        if self.quoted:
            self.end += len(quote)
        # The quote around both key and value.
        self.around = "" if self.quoted else quote
        self.line = text.rfind("\n", 0, self.start) + 1
        self.line_end = _line_end(text, self.end)
        self.before = text[self.start - 1 : self.start] if self.start > self.line else ""
        self.leads = _LEAD.fullmatch(text, self.line, self.start) is not None
        self.is_item = self.leads and text[self.line : self.start].rstrip(" \t").endswith("-") and self.before != "-"
        self.in_flow = not self.leads and text.find("{", self.line, self.start) >= 0
        self.in_list = text.find("[", self.line, self.start) >= 0
        self.is_flag = self.name.startswith("-")
        self.column = self.start - self.line


def _line_end(text: str, start: int) -> int:
    found = text.find("\n", start)
    return len(text) if found < 0 else found


def _value_of_key(key: _Key) -> SecretSpan | None:
    text = key.text
    if not is_secret(key.name):
        return None
    separator = _SEPARATOR.match(text, key.end)
    if separator is None:
        return _value_of_flag(key) if key.is_flag else None
    start = separator.end()
    colon = separator[0].strip() == ":"
    compact = colon and not key.quoted and separator[0].endswith(":") and start < key.line_end
    if colon and not key.quoted:
        is_path = key.name.startswith(("/", "./", "../")) or ("/" in key.name and (compact or not key.leads))
        # `system:serviceaccount:secrets:x` and the tag of an image are not values.
        if is_path or text.startswith("//", start) or (compact and key.before not in ("", *" \t{[(,\"'")):
            return None
        if (compact or not key.leads) and not is_secret(key.name, prose=True):
            return None
    start = behind_scheme(key.name, text, start)
    if key.leads and colon and not compact and not key.around:
        return _yaml_value(key, start)
    spaced = separator[0] != separator[0].strip()
    whole_line = key.leads and ((colon and not compact) or (spaced and not colon) or (key.is_flag and key.is_item))
    return _value(key, start, key.line_end, whole_line=whole_line)


def _value_of_flag(key: _Key) -> SecretSpan | None:
    """The value in the next word, or in the next item of a list."""
    text = key.text
    if _is_switch(key.name):
        return None
    if following := _NEXT_WORD.match(text, key.end):
        return _value(key, following.end(), key.line_end)
    if key.quoted and (following := _NEXT_QUOTED.match(text, key.end)):
        return _quoted(text, following.end(), _line_end(text, following.end()))
    if key.in_list and (following := _NEXT_IN_FLOW.match(text, key.end)):
        return _value(key, following.end(), key.line_end, in_flow=True)
    if key.is_item and (following := _NEXT_LINE.match(text, key.end)):
        start, end = following.end(), _line_end(text, following.end())
        return _quoted(text, start, end) if text[start] in "\"'" else _kept_plain(text, start, _reach(_REST, text, start, end))
    return None


def _value(key: _Key, start: int, end: int, whole_line: bool = False, in_flow: bool = False) -> SecretSpan | None:
    """The value that begins at `start`; it ends before `end`."""
    text = key.text
    if start >= end or (key.around and text.startswith(key.around, start)):
        return None
    if _QUOTE.match(text, start):
        return _quoted(text, start, end)
    if found := _LIST.match(text, start, end):
        return found.span(1) if found[1] else None
    if text[start - 1] != "=" and _MAP.match(text, start, end):
        return None
    if key.around and (closing := _closing(text, key.around, start, end)) is not None:
        flag = re.compile(r"[ \t]+--[A-Za-z]").search(text, start, closing) if key.is_flag else None
        return _kept_plain(text, start, flag.start() if flag else closing)
    if key.before in ("?", "&"):
        return _kept_plain(text, start, _reach(_BARE_IN_QUERY, text, start, end))
    if in_flow or key.quoted or (key.in_flow and text[key.end] == ":" and text[start - 1] in " \t"):
        return _kept_plain(text, start, _reach(_BARE_IN_FLOW, text, start, end))
    if whole_line:
        return _kept_plain(text, start, _reach(_REST, text, start, end))
    if _PLAIN_IN_LIST.match(text, start, end):
        return None
    stop = _reach(_BARE, text, start, end)
    return _kept_plain(text, start, start + len(text[start:stop].rstrip(",;)]}"))) or _kept_plain(text, start, stop)


def _reach(pattern: re.Pattern[str], text: str, start: int, end: int) -> int:
    match = pattern.match(text, start, end)
    return match.end() if match else start


def _kept_plain(text: str, start: int, end: int) -> SecretSpan | None:
    """The span without trailing blanks; None if there is nothing to hide."""
    end = start + len(text[start:end].rstrip())
    return None if start == end or PLAIN.fullmatch(text, start, end) else (start, end)


def _closing(text: str, quote: str, start: int, end: int) -> int | None:
    """The position of the next `quote` from `start` on, with exactly as many backslashes."""
    found = text.find(quote, start, end)
    while found > start and text[found - 1] == "\\":
        found = text.find(quote, found + 1, end)
    return None if found < 0 else found


def _quoted(text: str, start: int, end: int) -> SecretSpan | None:
    """The text between the quotes that open at `start`; up to the end of the line if they do not close on it."""
    opening = _QUOTE.match(text, start)
    assert opening is not None  # the caller has checked it
    quote, inner = opening[0], opening.end()
    if quote == "'":
        single = _SINGLE_QUOTED.match(text, start, end)
        closing = single.end() - 1 if single else None
    else:
        closing = _closing(text, quote, inner, end)
    if closing is None:
        return _kept_plain(text, inner, end)
    behind = closing + len(quote)
    # A shell joins adjacent parts: 'it'\''s', "a"b.
    if len(quote) == 1 and re.compile(rf"{quote}|\\{quote}|[\w$]").match(text, behind, end):
        return start, _reach(_SHELL_TAIL, text, behind, end)
    return _kept_plain(text, inner, closing)


def _yaml_value(key: _Key, start: int) -> SecretSpan | None:
    """The value of a key that begins a line. In YAML it may continue on the next lines, if they are indented further."""
    text = key.text
    if _BLOCK.match(text, start, key.line_end):
        return _below(key)
    scalar = _below(key, _NO_PROSE)
    if start >= key.line_end or text[start] == "#":
        return scalar or _items_below(key)
    span = _value(key, start, key.line_end, whole_line=True)
    opening = _QUOTE.match(text, start)
    if span and opening:
        # Not closed on its line.
        scalar = None if text.startswith(opening[0], span[1]) else _below(key)
    return (span[0], scalar[1]) if span and scalar else span


def _below(key: _Key, stop: re.Pattern[str] | None = None) -> SecretSpan | None:
    """The lines below the key's that are indented further, without surrounding blanks; only up to a line that begins with `stop`."""
    text, end = key.text, key.line_end
    marks = " \t+-" if text[key.line] in "+-" else " \t"
    while end < len(text):
        line_end = _line_end(text, end + 1)
        line = text[end + 1 : line_end]
        indent = len(line) - len(line.lstrip(marks))
        if line.strip() and (indent <= key.column or (stop and stop.match(line, indent))):
            break
        end = line_end
    block = text[key.line_end : end]
    return (end - len(block.lstrip()), key.line_end + len(block.rstrip())) if block.strip() else None


def _items_below(key: _Key) -> SecretSpan | None:
    """The items of the list below a key, if they are scalars. In YAML they may begin in the key's own column."""
    text, end = key.text, key.line_end
    first: int | None = None
    while item := re.compile(rf"\n[ \t]{{{key.column},}}-[ \t]+(?![\[{{]|{_NAME}(?:\s|$))(\S.*)", re.MULTILINE).match(text, end):
        first, end = item.start(1) if first is None else first, item.end()
    return None if first is None else (first, end)
