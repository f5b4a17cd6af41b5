"""No sentence in a comment is so long that nobody takes it in at once."""

from tests.layering.sentences import (
    FOLDERS,
    MOST_WORDS,
    comments,
    count_references,
    count_words,
    sentences,
    sentences_of,
)


def of(text):
    return [sentence for _, comment in comments(text) for sentence in sentences(comment)]


def test_comments_are_split_into_sentences():
    text = "\n".join(
        [
            "// The first one. A second",
            "// one of two lines:",
            "// - an entry,",
            "// - another.",
            "",
            'int x = 1;  // Behind code, without "http://" in it.',
            "// a   table",
            "//",
            "// At the end.",
        ]
    )
    assert of(text) == [
        "The first one.",
        "A second one of two lines:",
        "an entry,",
        "another.",
        'Behind code, without "http://" in it.',
        "a",
        "table",
        "At the end.",
    ]


def test_references_are_counted():
    assert count_references("The ranks that did not read it read it again.") == 2
    assert count_references("A rank reads what it wrote; those that follow do that, too.") == 3
    assert count_references("A rank says that `one` ends.") == 0


def test_a_planted_sentence_is_found():
    words = " ".join(["word"] * MOST_WORDS)
    (short,), (long,) = of(f"// {words}."), of(f"// {words}\n// more.")
    assert count_words(short) == MOST_WORDS < count_words(long)


def test_no_sentence_is_too_long():
    assert [
        f"{name}:{line}: {count_words(sentence)} words, expected at most {MOST_WORDS}: {sentence}"
        for name, line, sentence in sentences_of(FOLDERS)
        if count_words(sentence) > MOST_WORDS
    ] == []
