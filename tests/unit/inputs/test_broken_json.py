"""JSON that is none is called so, with the place, what is missing, and a line that can be pasted."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.bridge.command_line import data_problems
from roles.engine.inputs.broken_json import corrected

MAP, NODES = '{"A":true}', '["w1","w2"]'


@pytest.mark.parametrize(
    ("key", "value", "said", "meant"),
    [
        ("feature_gates", '{"A":true', "} is missing at the end, character 10 (for the { at character 1)", MAP),
        ("feature_gates", '{"A":true "B":false}', "a comma is missing before character 11", '{"A":true,"B":false}'),
        ("feature_gates", '{"A:true}', "the quote at character 2 is not closed", MAP),
        ("feature_gates", '{"A":"true}', "the quote at character 6 is not closed", '{"A":"true"}'),
        ("feature_gates", "{'A':true}", "single quotes at character 2", MAP),
        ("feature_gates", '{"A":true,}', "nothing follows the comma before character 11", MAP),
        ("feature_gates", '{"A":true,,"B":false}', "the comma at character 11 is one too many", '{"A":true,"B":false}'),
        ("feature_gates", "{A:true}", "double quotes are missing around the word at character 2", MAP),
        ("feature_gates", '{"A":True}', "True at character 6 is true in JSON", MAP),
        ("feature_gates", '{"A" true}', "a colon is missing before character 6", MAP),
        ("feature_gates", '{"A"=true}', "the = at character 5 is a colon in JSON", MAP),
        ("feature_gates", '{"A":true}}', "the } at character 11 is one too many", MAP),
        ("feature_gates", '{"A":true]', "the ] at character 10 is one too many", MAP),
        ("feature_gates", '"A":true}', "{ is missing at its beginning", MAP),
        ("feature_gates", "'A':true", "{ is missing at its beginning, } is missing at the end", MAP),
        ("nodes", '["w1","w2"', "] is missing at the end, character 11", NODES),
        ("nodes", '["w1" "w2"]', "a comma is missing before character 7", NODES),
        ("nodes", '"w1","w2"]', "[ is missing at its beginning", NODES),
        ("nodes", "[w1,w2]", "double quotes are missing", NODES),
        (
            "kubelet_config",
            '{"evictionHard":{"memory.available":"1Gi"}',
            "} is missing at the end, character 43",
            '{"evictionHard":{"memory.available":"1Gi"}}',
        ),
    ],
)
def test_what_is_wrong_where_and_the_line_to_paste(key: str, value: str, said: str, meant: str) -> None:
    (problem,) = data_problems([f"{key}={value}"])
    assert problem.startswith(f"--data {key}: broken JSON: ") and said in problem
    line = problem.partition("; write ")[2]
    assert shlex.split(line) == ["--data", f"{key}={meant}"]
    assert data_problems(shlex.split(line)[1:]) == []


@pytest.mark.parametrize(
    "word",
    ["kubelet_config=reservedSystemCPUs='63'", "feature_gates=A=true", "eviction_hard=memory.available<1Gi", 'feature_gates={"A":true}'],
)
def test_what_is_no_broken_json(word: str) -> None:
    assert data_problems([word]) == []


@pytest.mark.parametrize(
    "word",
    [
        'control_plane_files={"/etc/x": {"content": "hidden"}',
        '_sudo_password={"hidden":1',
        'node_labels={"password":"hidden"',
        'feature_gates={"A":}',
    ],
)
def test_a_value_that_may_be_secret_or_is_unclear_is_not_repeated(word: str) -> None:
    (problem,) = data_problems([word])
    assert "broken JSON: " in problem and "hidden" not in problem and "KEY={" in problem


VALUES = st.recursive(
    st.booleans() | st.integers(-99, 99) | st.text("ab/.:=,{}[]", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab.", max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text("ab./", min_size=1, max_size=3), VALUES, min_size=1, max_size=3), st.data())
def test_what_is_said_to_be_meant_is_json_and_only_the_end_that_is_cut_off_is_added(value: dict[str, object], data: st.DataObject) -> None:
    text = json.dumps(value)
    assert json.loads(corrected(text)[1]) == value and corrected(text)[0] == []
    assert json.loads(corrected(text[:-1])[1]) == value
    cut = text[: data.draw(st.integers(1, len(text)))]
    problems, whole = corrected(cut)
    assert (bool(problems) and isinstance(json.loads(whole), dict)) if whole and cut != text else not problems
