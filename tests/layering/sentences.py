"""Sentences in comments that are hard to read.

    python -m tests.layering.sentences [--list N] [--references] [FOLDER ...]

prints for each folder how many sentences its comments have, how many of them are long, and how many
refer back more than once. --list also prints the sentences with more than N words, and --references
the sentences that refer back more than once."""

import argparse
import pathlib
import re

from tests.layering.sources import project_files, workspace

LONG_WORDS = 25
# No sentence has more words.
MOST_WORDS = 40
SUFFIXES = {".cc", ".h", ".hh", ".proto", ".js", ".cu"}
FOLDERS = (
    "bench client common coordinator deploy examples plugin proto tests third_party worker"
).split()
# "that" refers back where it stands for a thing, and not where a clause or a noun follows.
REFERENCE = re.compile(
    r"\b(it|those|one)\b"
    r"|\bthat(?=\s*[,.;:)]|\s+(is|was|has|does|of|for|in|at)\b)"
    r"|(^|\b(and|but|or|if|after|before|from|with|than|to|of|for|by|in) )that\b",
    re.IGNORECASE,
)


def comments(text):
    """(number of the first line, text) of each comment. Lines that follow each other are one
    comment, up to an empty one. A line with columns, as in a table or a drawing, stands alone."""
    first, said = 0, []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = re.search(r"(^|\s)//\s?(.*)$", line)
        words = found.group(2).strip() if found else ""
        alone = not line.strip().startswith("//") or "   " in words
        if said and (not words or alone):
            yield first, " ".join(said)
            said = []
        if words and alone:
            for column in re.split(r" {3,}", words):
                yield number, column
        elif words:
            first = first if said else number
            said.append(words)


def sentences(comment):
    """The sentences of a comment; an entry of a list is one, too."""
    for part in re.split(r"(?:^|\s)[-*] (?=\S)", comment):
        yield from filter(None, re.split(r"(?<=[.!?:])\s+(?=[A-Z`\"(])", part.strip()))


def count_words(sentence):
    return sum(1 for word in sentence.split() if re.search(r"\w", word))


def count_references(sentence):
    return len(REFERENCE.findall(re.sub(r"`[^`]*`|\"[^\"]*\"", "", sentence)))


def sentences_of(folders):
    """(file, line, sentence)"""
    for name in project_files():
        path = pathlib.PurePath(name)
        if path.suffix in SUFFIXES and any(path.is_relative_to(folder) for folder in folders):
            for line, comment in comments((workspace() / name).read_text()):
                for sentence in sentences(comment):
                    yield name, line, sentence


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    parser.add_argument("--list", type=int, metavar="N", help="prints sentences of more words")
    parser.add_argument("--references", action="store_true", help="prints those that refer twice")
    arguments = parser.parse_args()
    figures = {}
    for name, line, sentence in sentences_of(arguments.folders):
        words, references = count_words(sentence), count_references(sentence)
        folder = next(f for f in arguments.folders if pathlib.PurePath(name).is_relative_to(f))
        row = figures.setdefault(folder, [0, 0, 0, 0])
        for column, counts in enumerate(
            (True, words > LONG_WORDS, words > MOST_WORDS, references > 1)
        ):
            row[column] += counts
        if arguments.list and words > arguments.list or arguments.references and references > 1:
            print(f"{name}:{line}: {words} words, {references} references: {sentence}")
    print(f"{'folder':<20} sentences  over {LONG_WORDS}  over {MOST_WORDS}  two references")
    for folder, (all_of_them, long, too_long, twice) in figures.items():
        print(f"{folder:<20} {all_of_them:>9} {long:>8} {too_long:>8} {twice:>15}")


if __name__ == "__main__":
    main()
