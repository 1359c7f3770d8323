"""Words of somebody else, such as a server, made fit for a terminal, a log or a person."""

_TOLD = 300
"""Characters of a server's error message that are passed on."""

_JOINERS = "\u200c\u200d"
"""What joins letters, or keeps them apart: some scripts need it, and it moves nothing."""


def is_plain(text: str) -> bool:
    """Tell whether all characters of a text are printed as themselves, on one line.

    Control characters, the escapes that begin a terminal's commands, characters that turn the
    direction of a text, and separators of lines are not.
    """
    return text.isprintable() or all(c.isprintable() or c in _JOINERS for c in text)


def plain(text: str) -> str:
    r"""Return a text with each character that `is_plain` refuses as its escape, such as \u001b.

    Line feeds and tabs stay: what prints lines needs them. The escapes are those of JSON, TOML and
    Python, so that a document of these stays one.
    """
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or is_plain(c) else _escape(ord(c)) for c in text)


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def on_one_line(words: str, most: int = _TOLD) -> str:
    """Return a server's message for a log or a person: cut after `most` characters, on one line."""
    return "".join(c if is_plain(c) else " " for c in words[:most])
