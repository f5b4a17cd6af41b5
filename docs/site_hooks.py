"""Hooks of mkdocs.yml. The pages are written for GitHub, and Python-Markdown differs from it."""

import logging
import pathlib
import posixpath
import re

import markdown

ROOT = pathlib.Path(__file__).absolute().parents[1]
LOG = logging.getLogger("mkdocs.hooks")
FENCE = re.compile(r"\s*```")
ITEM = re.compile(r"([-*]|\d+\.) ")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def on_config(config):
    config["markdown_extensions"].append(AsOnGitHub())
    config["mdx_configs"]["toc"]["slugify"] = anchor
    return config


class AsOnGitHub(markdown.Extension):
    """Two blanks are enough for what belongs to an item of a list."""

    def extendMarkdown(self, md):
        md.tab_length = 2


def anchor(heading, separator):
    """The fragment that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_page_markdown(text, page, config, files):
    """Lists, tables and code blocks begin after an empty line, and links lead to pages."""
    out, in_block = [], False
    first = ""  # the line with which the present paragraph, list or table began
    folder = posixpath.dirname(page.file.src_uri)
    if not folder and page.file.src_uri != "index.md":
        page.meta["search"] = {"exclude": True}  # a stub
    for line in text.split("\n"):
        fence = FENCE.match(line)
        if in_block:
            in_block = not fence
            out.append(line)
            if fence and not line[0].isspace():
                out.append("")
            continue
        in_block = bool(fence)
        if out and out[-1].strip() and begins(first, line):
            out.append("")
        if not out or not out[-1].strip():
            first = line
        if line.startswith("|"):
            line = re.sub(r"`[^`]*`", lambda code: code[0].replace(r"\|", "|"), line)
        out.append(LINK.sub(lambda link: led(link, folder, page), line))
    return "\n".join(out)


def begins(first, line):
    """Whether `line` begins a list, a table or a code block after what began with `first`."""
    if line.startswith("```"):
        return not first.startswith("<!--")
    if line.startswith("|"):
        return not first.startswith("|")
    return bool(ITEM.match(line)) and not ITEM.match(first)


def led(link, folder, page):
    """A link to a file of the repository that is no page names this file, because the site does not
    have it."""
    text, target = link[1], link[2]
    path = posixpath.normpath(posixpath.join("docs", folder, target.partition("#")[0]))
    if re.match(r"\w+:|#", target) or path.startswith("docs/"):
        return link[0]
    if not (ROOT / path).exists():
        LOG.warning("%s: %s leads nowhere", page.file.src_uri, target)
    return f"`{path}`" if text in (path, posixpath.basename(path)) else f"{text} (`{path}`)"
