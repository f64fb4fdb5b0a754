"""What a kubelet has against its files, and the lines that it is about; the words are those of real kubelets (1.36)."""

from __future__ import annotations

import pytest

from roles.engine.kubelet import blame
from tests.unit.kubelet.samples import EXTRA, MAIN, kubelet

DELIBERATE = "invalid configuration: maxPods (--max-pods) -1 must not be a negative number"
IMAGES = "invalid configuration: imageGCHighThresholdPercent (--image-gc-high-threshold) 250 must be between 0 and 100, inclusive"
END = "], path: &TypeMeta{Kind:,APIVersion:,}"
HEAD = "failed to validate kubelet configuration, error: ["
FOUND = kubelet(
    "maxPods: 5\nimageGCHighThresholdPercent: 250\nfeatureGates:\n  Gone: true\nauthentication:\n  webhook: {enabled: true}\n",
    extra="--no-such=1 --v=x --feature-gates=Old=true",
)


@pytest.mark.parametrize("said", [f"{HEAD}{IMAGES}, {DELIBERATE}{END}", f"{HEAD}{DELIBERATE}, {IMAGES}{END}", f"{HEAD}{IMAGES}{END}"])
def test_its_words_are_shown_without_those_that_were_asked_for(said: str) -> None:
    assert blame.plain(FOUND, said) == f"{HEAD}{IMAGES}]"


@pytest.mark.parametrize(
    ("said", "places"),
    [
        (f"{HEAD}{IMAGES}, {DELIBERATE}{END}", [f"{MAIN}, line 4"]),
        (f"{HEAD}{DELIBERATE}, {IMAGES}{END}", [f"{MAIN}, line 4"]),
        ("unrecognized feature gate: Gone", [f"{MAIN}, line 6"]),
        ("failed to set feature gates from initial flags-based config: unrecognized feature gate: Old", [f"{EXTRA}, line 1"]),
        ("failed to parse kubelet flag: unknown flag: --no-such", [f"{EXTRA}, line 1"]),
        (
            'failed to parse kubelet flag: invalid argument "x" for "-v, --v" flag: strconv.ParseUint: parsing "x": invalid syntax',
            [f"{EXTRA}, line 1"],
        ),
        (
            "failed to load kubelet config file, path: /run/daytwo-ask.Ab12/config, error: webhook of authentication is odd",
            [f"{MAIN}, line 7", f"{MAIN}, line 8"],
        ),
    ],
)
def test_the_lines_that_it_names(said: str, places: list[str]) -> None:
    assert blame.places(FOUND, said) == places


def test_where_it_names_nothing_the_files_are_named() -> None:
    said = "open /run/daytwo-ask.Ab12/config: something else"
    assert blame.plain(FOUND, said) == f"open {MAIN}: something else"
    assert blame.places(FOUND, said)[0] == MAIN and EXTRA in blame.places(FOUND, said)


def test_an_end_without_a_word_names_nothing() -> None:
    assert (
        blame.refuses("unknown flag: --x")
        and not blame.refuses("it ended with exit status 124 and printed nothing")
        and not blame.refuses("")
    )
