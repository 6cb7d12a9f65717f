"""Sphinx extension: a gallery of all figures and a list of all exercises.

An empty ``<div class="list-of-figures"></div>`` or ``list-of-exercises`` on a page
is filled in when the page is written: by then every chapter has been read.
"""

__all__ = ["setup"]

from html import escape
from pathlib import Path

from chapters import chapters
from docutils import nodes
from sphinx.util.osutil import relative_uri
from sphinx_exercise.nodes import exercise_enumerable_node, exercise_node


def setup(app):
    app.connect("html-page-context", fill_in)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def fill_in(app, pagename, templatename, context, doctree) -> None:
    """Fill the page's empty lists, chapter after chapter."""
    body = context.get("body", "")
    for name, entries in (("figures", figures), ("exercises", exercises)):
        empty = f'<div class="list-of-{name}"></div>'
        if empty not in body:
            continue
        parts = []
        for chapter in chapters(Path(app.srcdir)):
            page = app.env.get_and_resolve_doctree(chapter.docname, app.builder)
            target = app.builder.get_relative_uri(pagename, chapter.docname)
            found = list(entries(app, page, pagename, target))
            if found:
                title = escape(app.env.titles[chapter.docname].astext())
                parts.append(f'<h2><a href="{target}">{title}</a></h2>\n<ul>{"".join(found)}</ul>')
        body = body.replace(empty, f'<div class="list-of-{name}">{"".join(parts)}</div>')
    context["body"] = body


def figures(app, page, pagename, target):
    """An entry with its picture for every figure of a page that has a name."""
    for figure in page.findall(nodes.figure):
        image = next(figure.findall(nodes.image), None)
        caption = next(figure.findall(nodes.caption), None)
        if image is None or caption is None or not figure["ids"]:
            continue
        file = app.env.images[image["uri"]][1]
        source = relative_uri(app.builder.get_target_uri(pagename), f"{app.builder.imagedir}/{file}")
        yield (f'<li><a href="{target}#{figure["ids"][0]}">'
               f'<img src="{source}" alt="{escape(image["alt"], quote=True)}" loading="lazy">'
               f"<span>{first_sentence(caption)}</span></a></li>")


def exercises(app, page, pagename, target):
    """An entry for every exercise of a page: its title, or how it begins."""
    for exercise in page.findall(lambda node: isinstance(node, (exercise_node, exercise_enumerable_node))):
        title, start = exercise.children[0], next(exercise.findall(nodes.paragraph))
        words = f"<b>{escape(title.astext())}</b> {first_sentence(start)}"
        yield f'<li><a href="{target}#{exercise["ids"][0]}">{words}</a></li>'


def first_sentence(node) -> str:
    """The first sentence of a node as HTML, mathematics in TeX for MathJax."""
    text = ""
    for part in node.children:
        if isinstance(part, nodes.math):
            text += f'<span class="math notranslate nohighlight">\\({escape(part.astext())}\\)</span>'
            continue
        before, dot, _ = part.astext().partition(". ")
        text += escape(before)
        if dot:
            return text + "."
    return text
