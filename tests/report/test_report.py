"""Reports of hand-built estimates: the text to the character, JSON by its schema and back, CSV, untrusted names."""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.errors import InputError
from analyzer.report import attribution, folded, html, sentences, text, trace, words
from analyzer.report import csv as csv_report
from analyzer.report import json as json_report
from analyzer.report.formats import View
from analyzer.report.verdicts import verdicts
from analyzer.results.estimate import Estimate, OutOfMemory
from tests.paths import ROOT
from tests.report.estimates import GOLDEN, INFERENCE, MIB, TRAINING, UNKNOWN, hostile


def schema() -> Any:
    return json.loads((resources.files("analyzer.report") / "schema.json").read_text())


def test_text_to_the_character() -> None:
    assert text.render(TRAINING) == GOLDEN


@pytest.mark.parametrize("width", [40, 120])
def test_text_to_the_character_at_other_widths(width: int) -> None:
    """`UPDATE_GOLDEN=1 pytest tests/report` writes the files anew: look at the difference before you commit it."""
    path = ROOT / f"tests/report/golden/training_{width}.txt"
    shown = text.render(TRAINING, View(width=width, by="module"))
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(shown)
    assert shown == path.read_text()
    assert max(map(len, shown.splitlines())) <= width


@pytest.mark.parametrize(
    ("environment", "width", "color"),
    [
        ({}, 80, False),
        ({"COLUMNS": "40"}, 40, False),
        ({"COLUMNS": "120"}, 120, False),
        ({"COLUMNS": "9"}, 40, False),
        ({"COLUMNS": "nonsense"}, 80, False),
        ({"FORCE_COLOR": "1"}, 80, False),
        ({"NO_COLOR": "1"}, 80, False),
    ],
)
def test_the_command_is_as_wide_as_columns_says_and_never_coloured_when_piped(
    environment: dict[str, str], width: int, color: bool, tmp_path: Path
) -> None:
    saved = tmp_path / "estimate.json"
    saved.write_text(json_report.render(TRAINING))
    clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    ran = subprocess.run(
        [sys.executable, "-m", "analyzer.cli", "report", str(saved), "-q"],
        capture_output=True, text=True, check=True, encoding="utf-8",
        env={**clean, "PYTHONIOENCODING": "utf-8", **environment},
    )  # fmt: skip
    assert ran.stdout == text.render(TRAINING, View(width=width))
    assert ("\x1b" in ran.stdout) == color


@pytest.mark.parametrize(
    ("variables", "color"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_a_terminal_gets_colour_unless_told_not_to(
    variables: dict[str, str], color: bool, tmp_path: Path
) -> None:
    saved = tmp_path / "estimate.json"
    saved.write_text(json_report.render(TRAINING))
    here, there = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "PYTHONIOENCODING": "utf-8", **variables}
    if not variables.get("NO_COLOR"):
        environment.pop("NO_COLOR", None)
    ran = subprocess.Popen(
        [sys.executable, "-m", "analyzer.cli", "report", str(saved), "-q"], stdout=there, env=environment
    )
    os.close(there)
    shown = b""
    with contextlib.suppress(OSError):  # the other side has closed
        while part := os.read(here, 65536):
            shown += part
    assert ran.wait() == 0
    os.close(here)
    told = shown.decode().replace("\r\n", "\n")
    assert ("\x1b[" in told) == color
    plain = re.sub(r"\x1b\[[0-9;]*m", "", told).splitlines()
    assert [line.rstrip() for line in plain] == text.render(TRAINING, View(width=100)).splitlines()


def test_inference_shows_only_the_terms_of_inference() -> None:
    lines = text.render(INFERENCE).splitlines()
    assert "naive = data 4.0 + weights 8.0 + outputs 16.0 MiB" in lines
    assert any(
        re.match(r"naive sum +29,360,128 +28\.0 +30\.0 % under peak allocated$", line) for line in lines
    )


@pytest.mark.parametrize(
    ("capacity", "budget", "first"),
    [
        (100 * MIB, None, "fits: 60.0 MiB of 100.0 MiB on h200, headroom 40.0 MiB (40.0 %)"),
        (60 * MIB, None, "fits: 60.0 MiB of 60.0 MiB on h200, headroom 0 B (0.0 %)"),
        (50 * MIB, None, "does not fit: needs 60.0 MiB of 50.0 MiB on h200, 10.0 MiB too much"),
        (100 * MIB, 48 * MIB, "over budget: needs 60.0 MiB of 48.0 MiB allowed, 12.0 MiB too much"),
        (50 * MIB, 80 * MIB, "does not fit: needs 60.0 MiB of 50.0 MiB on h200, 10.0 MiB too much"),
    ],
)
def test_the_first_line_says_whether_it_fits(capacity: int, budget: int | None, first: str) -> None:
    shown = text.render(replace(TRAINING, capacity_bytes=capacity), View(budget_bytes=budget))
    assert shown.splitlines()[0] == first


@pytest.mark.parametrize("scale", [1, 10**6, 10**12, 10**15])
def test_tables_fit_eighty_columns_at_any_size(scale: int) -> None:
    row = replace(
        TRAINING.tensors[0], nbytes=20 * MIB * scale, module="very.long." * 20, source="f" * 90 + ".py:3"
    )
    big = replace(TRAINING, tensors=(row,), **{
        name: getattr(TRAINING, name) * scale for name in ("peak_allocated", "peak_reserved", "device_used", "graph_peak")
    })  # fmt: skip
    shown = text.render(big)
    assert max(map(len, shown.splitlines()[1:])) <= 80
    assert f"{big.peak_allocated:,}" in shown and words.size(row.nbytes) in shown
    assert shown.count("…") >= 2 and "f.py:3" in shown


def test_color_is_only_on_request() -> None:
    colored = text.render(TRAINING, View(color=True))
    assert "\x1b[1;32mfits" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) != "" and "\x1b" not in text.render(TRAINING)


def test_top_bounds_the_tensors() -> None:
    assert "fc" not in text.render(TRAINING, View(top=1)).partition("Largest")[2].partition("How sure")[0]
    assert "Largest tensors" not in text.render(TRAINING, View(top=0))


@pytest.mark.parametrize(
    "render",
    [text.render, csv_report.render, json_report.render, html.render, trace.render, folded.render],
)
def test_untrusted_names_cannot_reach_the_terminal(render: Any) -> None:
    shown = render(hostile())
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e]", shown)
    assert "[bold]x[/bold]" in shown


def test_numbers_survive_hostile_names() -> None:
    shown = text.render(hostile("\x1b[2J" + "n" * 500))
    assert max(map(len, shown.splitlines())) <= 80
    assert "41,943,040" in shown and re.search(r"^ *1\.0 MiB ", shown.partition("Largest")[2], re.MULTILINE)


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("kind", attribution.KINDS)
@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "\x1b[31m[red]'\"\x07", "n" * 10_000])
def test_tables_keep_their_shape_whatever_the_names(name: str, kind: str, width: int) -> None:
    shown = text.render(hostile(name), View(by=kind, width=width))
    lines = shown.splitlines()
    assert "\x1b" not in shown and "\x07" not in shown
    # A verdict is never cut, and a wrapped name of ten thousand letters is long: the tables are what keeps its shape.
    assert max(map(len, lines[1:])) <= width
    assert len(lines) < 120 + 4 * len(name) // width


@given(st.text())
def test_clean_leaves_one_printable_line(name: str) -> None:
    assert words.clean(name).isprintable() and words.clean(words.clean(name)) == words.clean(name)


def test_clean_omits_the_middle_of_an_endless_name() -> None:
    shown = words.clean("begin" + "x" * 5_000_000 + "end")
    assert shown.startswith("begin") and shown.endswith("end") and len(shown) < 10_000
    assert words.clean(shown) == shown


@pytest.mark.parametrize(
    ("nbytes", "shown"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.0 KiB"),
        (-MIB, "-1.0 MiB"),
        (1536 * MIB, "1.5 GiB"),
        (10**24, "867,361.7 EiB"),
    ],
)
def test_size(nbytes: int, shown: str) -> None:
    assert words.size(nbytes) == shown


@given(st.integers(min_value=0, max_value=2**100))
def test_mib_rounds_to_the_nearest_tenth(nbytes: int) -> None:
    shown = words.mib(nbytes).replace(",", "")
    tenths = int(shown.replace(".", ""))
    assert abs(10 * nbytes - tenths * MIB) <= MIB // 2


@pytest.mark.parametrize(
    "estimate",
    [TRAINING, INFERENCE, UNKNOWN, hostile(), replace(TRAINING, batch=None, peak_allocated=10**30)],
)
def test_json_follows_its_schema_and_comes_back(estimate: Estimate) -> None:
    document = json.loads(json_report.render(estimate))
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(document, schema())
    assert json_report.from_dict(document) == estimate
    assert json.loads(estimate.to_json()) == document


def test_an_estimate_saved_before_rules_had_names_is_read_and_shown() -> None:
    document = json_report.to_dict(TRAINING)
    del document["certainty"]["by_rule"], document["timeline"]["rule"]
    for row in document["tensors"]:
        del row["rule"]
    jsonschema.validate(document, schema())
    old = json_report.from_dict(document)
    assert [row.rule for row in old.tensors] == ["", ""] and old.timeline.rule == ()
    assert " forward   saved for backward\n" not in text.render(TRAINING)
    assert re.search(r"^ forward   saved for backward +convolution", text.render(old), re.MULTILINE)
    assert "measured:" not in text.render(old)
    assert [row["rule"] for row in csv.DictReader(io.StringIO(csv_report.render(old)))] == [""] * 5
    assert "saved for backward" in html.render(old)


def test_a_rule_is_never_cut() -> None:
    row = replace(TRAINING.tensors[0], rule="mem-eff-attention-grad", category="saved for backward")
    shown = text.render(replace(TRAINING, tensors=(row,)))
    assert "saved fo… · mem-eff-attention-grad" in shown and max(map(len, shown.splitlines())) <= 80


def test_json_keys() -> None:
    document = json_report.to_dict(TRAINING)
    assert (document["schema"], document["fits"], document["headroom_bytes"]) == (1, True, 40 * MIB)
    assert (document["naive"]["training"], document["naive"]["inference"]) == (56 * MIB, 28 * MIB)
    assert (document["at_least"], document["certainty"]["unknown_operators"]) == (False, {})
    unknown = json_report.to_dict(UNKNOWN)
    assert (unknown["at_least"], unknown["fits"], unknown["verdict"]) == (True, False, "may not fit")
    assert unknown["certainty"]["unknown_operators"]["custom::op"] == {"calls": 3, "bound_bytes": None}


def test_what_an_unknown_operator_takes_has_no_bound() -> None:
    """Every figure is a lower bound, in every form, and nothing fits for certain."""
    assert [said for _, said in verdicts(UNKNOWN, 90 * MIB)] == [
        "may not fit: at least 60.0 MiB of 100.0 MiB on h200, not counting what custom::op and 1 more take for themselves",
        "may be over budget: at least 60.0 MiB of 90.0 MiB allowed, not counting what custom::op and 1 more take for themselves",
    ]
    shown = text.render(UNKNOWN).splitlines()
    assert sum("at least; " in line for line in shown) == 3
    assert "  custom::op: 3 calls" in shown and "  mine::b: 1 call" in shown
    assert not any(word in " ".join(shown) for word in ("at most", "their bound"))
    assert UNKNOWN.at_least and not UNKNOWN.fits() and not UNKNOWN.fits("h200") and UNKNOWN.within(60 * MIB)
    assert (UNKNOWN.verdict(), UNKNOWN.verdict(59 * MIB)) == ("may not fit", "does not fit")
    assert "at least 60.0 MiB" in text.render(replace(UNKNOWN, capacity_bytes=MIB)).splitlines()[0]
    assert "at least" in html.render(UNKNOWN) and "at most" not in html.render(UNKNOWN)


@pytest.mark.parametrize(
    ("event", "phase", "said"),
    [
        ("1.backward", "backward", "1.backward, in conv, small.py:12"),
        (
            "1.backward",
            "evaluation",
            "1.evaluation, in conv, small.py:12",
        ),  # of a program: before that is over
        ("1.step", "optimizer", "1.step, in conv, small.py:12"),
        ("", "generation", "generation, in conv, small.py:12"),  # after the last event
        ("run 2", "forward", "run 2, in conv, small.py:12"),
        ("run 2", "", "run 2, in conv, small.py:12"),
    ],
)
def test_the_peak_has_a_phase_a_module_and_a_line(event: str, phase: str, said: str) -> None:
    taken = TRAINING.allocations
    origins = (taken.origins[0], replace(taken.origins[1], phase=phase))
    estimate = replace(TRAINING, peak_at=event, allocations=replace(taken, origins=origins))
    assert f"At the peak ({said})" in text.render(estimate).splitlines()[:16]
    assert said in html.render(estimate)
    without = replace(estimate, allocations=type(taken)())
    assert sentences.peak_place(without) == event


def test_the_schema_describes_every_attribute() -> None:
    """And those of the results in it: what it does not describe, a damaged file may hold anything in."""

    def results(hint: Any) -> Iterator[Any]:
        if is_dataclass(hint):
            yield hint
        for part in get_args(hint):
            yield from results(part)

    def check(kind: Any, described: Mapping[str, Any]) -> None:
        hints = get_type_hints(kind)
        for name in (field.name for field in fields(kind)):
            assert name in described["properties"], f"{kind.__name__}.{name}"
            part = described["properties"][name]
            for inner in results(hints[name]):
                check(inner, part if "properties" in part else part["items"])

    check(Estimate, schema())


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("nonsense", "not JSON"),
        ("[]", "not an estimate"),
        ("{}", "not an estimate"),
        ('{"schema": 99}', "schema 99"),
        ('{"schema": 1}', "damaged"),
        ('{"schema": 1, "naive": 3, "marks": []}', "damaged"),
    ],
)
def test_reading_something_else_is_one_clear_error(document: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        json_report.loads(document)
    assert caught.value.hint


def test_csv() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_report.render(TRAINING))))
    assert [row["kind"] for row in rows] == ["malloc", "mark", "malloc", "mark", "free"]
    assert rows[2] == {
        "index": "2",
        "kind": "malloc",
        "name": "conv, out",
        "delta_bytes": str(32 * MIB),
        "allocated_bytes": str(40 * MIB),
        "reserved_bytes": str(42 * MIB),
        "peak_bytes": "",
        "category": "saved for backward",
        "phase": "0.forward",
        "rule": "tensor",
    }
    assert (rows[3]["name"], rows[3]["peak_bytes"], rows[3]["delta_bytes"]) == (
        "0.forward",
        str(36 * MIB),
        "0",
    )


class Tags(HTMLParser):
    """Every tag with its attributes, and the text between them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "wbr":  # where a line may end
            self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


def test_html_says_what_the_text_says_and_needs_nothing_else() -> None:
    page = Tags()
    made = html.render(TRAINING, View(budget_bytes=48 * MIB))
    page.feed(made)
    said = " ".join(page.words)
    for words_ in (
        "over budget: needs 60.0 MiB",
        "fits: 60.0 MiB",
        "58,720,256",
        "40.0 % over peak allocated",
        "measured: cudnn-convolution 3.0 MiB",
        "ort-initializer",
        "0.forward",
        "A first note.",
        "fc.weight",
    ):
        assert words_ in said
    assert not {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "base", "form"}
    names = {name for _, attributes in page.tags for name in attributes}
    links = [attributes["href"] for _, attributes in page.tags if "href" in attributes]
    assert links == ["#content"]  # over the header to what the page is about
    assert not names & {"src", "style"} and not any(name.startswith("on") for name in names)
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and "unsafe" not in policy and "default-src 'none'" in policy
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    inside = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", made, re.DOTALL)
    digests = {base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() for source in inside}
    assert digests == allowed


def test_html_escapes_names() -> None:
    evil = '<script>alert(1)</script>" onload="x'
    plain, page = Tags(), Tags()
    plain.feed(html.render(hostile("name")))
    page.feed(html.render(hostile(evil)))
    assert page.tags == plain.tags and evil in " ".join(page.words)


def test_every_vendored_library_has_its_licence() -> None:
    vendor = ROOT / "analyzer/report/assets/vendor"
    for path in vendor.iterdir():
        library = path.name.partition(".")[0].removesuffix("_simple")
        if path.suffix in (".js", ".css"):
            told = (vendor / f"{library}.LICENSE").read_text()
            assert "Copyright" in told and ("MIT" in told or "Permission" in told)


def test_out_of_memory_survives_json() -> None:
    failed = OutOfMemory(
        24 * MIB, 60 * MIB, 90 * MIB, 100 * MIB, 30 * MIB, 20 * MIB, 7, "x", "aten::add", "conv"
    )
    estimate = replace(TRAINING, out_of_memory=failed)
    assert json_report.loads(json_report.render(estimate)).out_of_memory == failed
    jsonschema.validate(json_report.to_dict(estimate), schema())
