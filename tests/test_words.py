"""Plain words: phrases that readers stumbled over are refused wherever people read, in code, docs and messages."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
READ = ("src", "studies", "bench", "demo", "docs", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
QUOTES = ("docs/sources.md", "docs/spec", "docs/conformance.md")
"""These quote other texts."""

REFUSED = {
    r"\b[Ww]ho(so)?ever\b": "callers that, a client that",
    r"\banew\b": "again, re-",
    r"\b(is|are|was|were|be|been) told\b(?! (apart|to)\b)": "is reported, is logged, gets",
    r"\btells? of\b": "reports, shows",
    r"\btwice is no error\b": "idempotent",
    r"\bwhat there is not\b": "what is missing",
    r"\b(is|are|was|were) passed over\b": "skipped",
    r"\bwhat there is\b(?! no)": "what exists, what is left",
    r"\bfor who\b(?! in\b|, )": "for callers that",
    r"\blets? go\b": "deletes, releases, aborts",
    r"\bSee the module\b": "a sentence of its own",
    r"\b([Ff]ollow(ed)?|[Ll]istens?|leads?|registered|needed|counts|heard of)\b[^.,|]{0,15} no more\b(?! than)": "no longer",
    r"\b(tokens?|address(es)?) (is|are) (not )?(to be )?had\b": "comes from, cannot be bound",
    r"\bhas not (that|this)\b": "lacks",
    r"\bshall\b": "should, must, will",
    r"\bgone on with\b": "continued",
    r"\ball the same\b": "nevertheless, still",
    r"\bof late\b": "recently",
    r"\bhears? of\b": "learns of, is called with, gets",
    r"\bbelongs? into\b": "belongs in",
    r"\bheld against\b": "compared with",
    r"\b(is|are|was|were|may) not \w+ any more\b": "no longer",
    r"\b(is|are) served on\b": "keeps serving",
    r"\bwhat is so\b": "the current state",
    r"\b(one|byte|offset|position|batch|bytes) behind the (last|end|first)\b": "after",
    r"\b[Ff]or ever\b": "forever, permanently",
    r"(?m)(^|[.;:,|] )[Ww]hom\b": "clients that",
    r"(?m)(^|[.;:,|] )[Ww]ho (uses|has|asks|waits|wants|reads|takes|sends)\b": "clients that use, users that have",
    r"\bas by Kafka(?!'s)\b": "as in Kafka, as Kafka does",
    r"\bas ever\b": "as usual, unchanged",
    r"\b(is|are|was|were|be) there twice\b": "is a duplicate",
    r"\bso long\b(?! as)": "for that time, that long",
    r"\bknown again\b": "recognized",
    r"\bmay do everything\b": "has full access",
    r"\bwhere nobody\b": "if no client, if none",
    r"\bgiven several times\b": "repeated",
    r"\b(a|the) (client|broker|cluster|page|room|folder|name|file) of (its|one's) own\b": "its own",
    r"\bwhat comes meanwhile\b": "records that arrive meanwhile",
    r"\b[Ss]tands? for (itself|themselves)\b": "is handled by itself, is independent",
    r"\b([Nn]o|by the) word of\b": "nothing about, according to",
    r"\b[Ww]hat(ever)? (becomes|became) of\b": "the fate of, the state of",
    r"\b[Ee]rrors? of (Kafka|Tidelog)'s\b": "Kafka's error",
    r"\bfrom when on\b": "the time from which",
    r"\bfor want of\b": "without, because it lacks",
    r"\bbetween two looks\b": "between two checks",
    r"\bthe asker\b": "the client",
}


@cache
def _texts() -> dict[Path, str]:
    found = [path for name in READ for path in ([ROOT / name] if (ROOT / name).is_file() else sorted((ROOT / name).rglob("*")))]
    readable = [path for path in found if path.suffix in (".py", ".pyi", ".md") and path.is_file()]
    own = [path for path in readable if not path.relative_to(ROOT).as_posix().startswith(QUOTES)]
    return {path: path.read_text(encoding="utf-8") for path in own}


@pytest.mark.parametrize("phrase", REFUSED)
def test_no_file_uses_the_phrase(phrase: str) -> None:
    uses = _uses(phrase, _texts())
    assert not uses, f"write instead: {REFUSED[phrase]}\n" + "\n".join(uses)


def _uses(phrase: str, texts: dict[Path, str]) -> list[str]:
    pattern = re.compile(phrase)
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in texts.items()
        if pattern.search(text)  # Line by line takes ten times as long.
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_the_pattern_would_find_them() -> None:
    """Each pattern finds the phrase that it was written for."""
    phrases = (
        "whoever asks",
        "built anew",
        "is told at once",
        "tells of it",
        "twice is no error",
        "what there is not",
        "is passed over",
        "gets what there is",
        "for who waits",
        "retention lets go",
        "is followed no more",
        "an address is not to be had",
        "has not that mechanism",
        "it shall end",
        "a folder is gone on with",
        "sent all the same",
        "too many of late",
        "a broker hears of it",
        "passwords belong into the file",
        "held against the bytes",
        "is not compacted any more",
        "what it leads is served on",
        "the next one says what is so",
        "it waits for ever",
        "Whom the controllers throttle is muted",
        "Who uses more is answered",
        "is refused, as by Kafka",
        "reading works as ever",
        "a batch was there twice",
        "records wait so long",
        "batches are known again",
        "a user that got in may do everything",
        "where nobody can ask",
        "may be given several times",
        "each has a file of its own",
        "what comes meanwhile is flushed",
        "each partition stands for itself",
        "there is no word of it",
        "what became of its records",
        "an error of Kafka's",
        "the time from when on tombstones go",
        "refused for want of a line",
        "between two looks at the clock",
        "where the asker's reads end",
    )
    assert all(any(re.search(pattern, phrase) for pattern in REFUSED) for phrase in phrases)
