"""Limits of the XML in answers of S3, which botocore parses without any: entities, elements, lengths."""

from contextlib import suppress
from typing import Any
from xml.parsers.expat import ExpatError, ParserCreate

from botocore.parsers import ResponseParserError

_ERROR_BYTES = 64 * 1024
"""Bytes of an answer that is not a page of a listing: an error, or the name of an upload."""
_TAGS = 100_000
"""A page of a listing has at most 1,000 entries."""
_DEPTH = 16
_PIECE_BYTES = 8 * 1024
"""Bytes of a tag with the text behind it: a name has at most 1,024 bytes, three times as many where it is encoded."""
_ATTRIBUTES = 4
_NAME_CHARACTERS = 256
"""Characters of an element's name and its attributes: the parser repeats a namespace in each name."""


def limit_answers(client: Any) -> None:
    """Where an answer exceeds the limits, its status alone counts; if that means success, ResponseParserError is raised."""

    def check(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
        body = response_dict["body"]
        page = operation_model.name.startswith("List") and response_dict["status_code"] < 300
        if not isinstance(body, bytes) or ((page or len(body) <= _ERROR_BYTES) and _is_bounded(body)):
            return
        if response_dict["status_code"] <= 300:  # botocore takes an error from 301
            raise ResponseParserError("the XML is not one of S3")
        response_dict["body"] = b""

    # handlers of the least specific name are called first: one of botocore's, for `before-parse.s3.*`, parses
    client.meta.events.register_first("before-parse.*.*", check)


def _is_bounded(body: bytes) -> bool:
    """True also for text that is not XML. A declaration, comment or CDATA begins with `<!`; encodings other than UTF-8 have zeros."""
    if (
        b"<!" in body
        or b"\0" in body
        or body.count(b"<") > _TAGS
        or max(map(len, body.split(b"<"))) > _PIECE_BYTES
    ):
        return False
    parser, limits = ParserCreate("utf-8"), _Limits()
    parser.StartElementHandler, parser.EndElementHandler = limits.start, limits.end
    with suppress(ExpatError):
        parser.Parse(body, True)
    return not limits.exceeded


class _Limits:
    """Whether an element so far has exceeded the limits, and how many are open."""

    exceeded = False
    depth = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        characters = len(name) + sum(len(key) + len(value) for key, value in attributes.items())
        many = self.depth > _DEPTH or len(attributes) > _ATTRIBUTES
        self.exceeded |= many or characters > _NAME_CHARACTERS

    def end(self, name: str) -> None:
        self.depth -= 1
