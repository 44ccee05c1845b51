"""Options that name some words of a table, separated by spaces, or `all`. Pure."""

from collections.abc import Iterable


def pattern_of(words: Iterable[str]) -> str:
    """A regular expression for such options; `words`: the table's."""
    return rf"^(({'|'.join((*words, 'all'))})( +|$(?!\n)))*$(?!\n)"


def words_of(text: str, words: Iterable[str]) -> frozenset[str]:
    """The words that the text names; `all`: every word of the table."""
    given = frozenset(text.split())
    return frozenset(words) if "all" in given else given
