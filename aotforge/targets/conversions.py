"""Conversions that Triton lowers wrongly, rewritten in its GPU IR as two that it lowers rightly."""

import re
from collections.abc import Collection

WIDENING, NARROWING, UNSIGNED = "fp8-to-bf16", "fp16-to-fp8e4nv", "float-to-u8"
_LINE = re.compile(
    r"^(?P<indent>\s*)%(?P<result>[\w$.-]+) = (?P<operation>tt\.fp_to_fp|arith\.fptoui) (?P<value>%[\w$.#-]+)"
    r"(?:, rounding = \w+)? : (?P<source>.+?) (?:->|to) (?P<target>.+?)(?P<location> loc\(.*\))?$",
    re.MULTILINE,
)
_ELEMENT = re.compile(r"^(tensor<(?:\d+x)+)?(\w+)(.*)$")
_PAIRS = {
    ("f8E5M2", "bf16"): WIDENING,
    ("f8E4M3FN", "bf16"): WIDENING,
    ("f16", "f8E4M3FN"): NARROWING,
}


def exact_conversions(text: str, hazards: Collection[str]) -> str:
    """The IR without conversions that have one of the hazards. Everything else stays as it is.

    Through float32, which has every number of the narrower type: nothing is rounded twice. Integers of 8 bits
    through 32: a number that the result cannot have then leaves the elements beside it alone.
    """

    def replaced(match: re.Match[str]) -> str:
        source, target = match["source"], match["target"]
        pair = (_element(source), _element(target))
        wide, value, place = f"%exact_{match['result']}", match["value"], match["location"] or ""
        if match["operation"] == "arith.fptoui":
            if UNSIGNED not in hazards or pair[1] != "i8":
                return match[0]
            between = _with_element(target, "i32")
            first = f"arith.fptoui {value} : {source} to {between}"
            second = f"arith.trunci {wide} : {between} to {target}"
        else:
            if _PAIRS.get(pair) not in hazards:
                return match[0]
            between = _with_element(source, "f32")
            if pair[0] == "f16":
                first = f"arith.extf {value} : {source} to {between}"
                second = f"tt.fp_to_fp {wide}, rounding = rtne : {between} -> {target}"
            else:
                first = f"tt.fp_to_fp {value} : {source} -> {between}"
                second = f"arith.truncf {wide} : {between} to {target}"
        indent = match["indent"]
        return f"{indent}{wide} = {first}{place}\n{indent}%{match['result']} = {second}{place}"

    return _LINE.sub(replaced, text)


def _element(kind: str) -> str:
    match = _ELEMENT.match(kind)
    return match[2] if match else ""


def _with_element(kind: str, element: str) -> str:
    return _ELEMENT.sub(lambda match: f"{match[1] or ''}{element}{match[3]}", kind)
