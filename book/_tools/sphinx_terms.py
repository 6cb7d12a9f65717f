"""Sphinx extension: what a term means, shown where the pointer rests on a link to it.

A ``{term}`` leads to the glossary; the link's title is the first sentence there.
"""

__all__ = ["setup"]

from docutils import nodes
from sphinx.addnodes import pending_xref

GLOSSARY = "book/notation"


def setup(app):
    app.connect("doctree-read", depend_on_glossary)
    app.connect("doctree-resolved", add_titles)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def depend_on_glossary(app, doctree) -> None:
    """A page with terms is made anew when their meanings change."""
    if any(link["reftype"] == "term" for link in doctree.findall(pending_xref)):
        app.env.note_dependency(app.env.doc2path(GLOSSARY))


def add_titles(app, doctree, docname) -> None:
    """Give every link to a term the term's meaning as its title."""
    links = [link for link in doctree.findall(nodes.reference)
             if any("std-term" in part["classes"] for part in link.findall(nodes.inline))]
    if links:
        meanings = meanings_of(app.env.get_doctree(GLOSSARY))
        for link in links:
            link["reftitle"] = meanings[link.get("refid") or link["refuri"].partition("#")[2]]


def meanings_of(glossary) -> dict[str, str]:
    """The first sentence about each term, by the term's anchor."""
    return {anchor: item.next_node(nodes.definition).astext().partition(". ")[0].rstrip(".") + "."
            for item in glossary.findall(nodes.definition_list_item)
            for term in item.findall(nodes.term) for anchor in term["ids"]}
