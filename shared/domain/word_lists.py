"""Options that name some words of a table, separated by spaces, or `all`. Pure."""

from collections.abc import Iterable


def pattern_of(words: Iterable[str]) -> str:
    """The regular expression of such a text."""
    return rf"^(({'|'.join((*words, 'all'))})( +|$(?!\n)))*$(?!\n)"


def words_of(text: str, words: Iterable[str]) -> frozenset[str]:
    """The words of the text."""
    given = frozenset(text.split())
    return frozenset(words) if "all" in given else given
