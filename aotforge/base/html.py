"""HTML pages and generated sources from the Jinja templates in `aotforge/base/templates/`."""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def templates() -> Environment:
    """All templates. Values are escaped; an undefined name raises."""
    return Environment(
        loader=PackageLoader("aotforge.base"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: object) -> str:
    """The text of `template` with `values`."""
    return templates().get_template(template).render(values)
