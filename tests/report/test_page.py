"""The pages in a real browser without network: what hover, click, search and sort show against the estimate, hostile
names, dark mode, a phone's width, print, a hundred thousand events."""

from __future__ import annotations

import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import analyzer
from analyzer.cli import main
from analyzer.planning.compare import compare
from analyzer.report import attribution, formats, html, page, text
from analyzer.report.words import mib, size
from analyzer.results.estimate import Allocations, Estimate, Origin, SegmentRow, Timeline
from tests.paths import MODELS
from tests.report.browser import chromium, until
from tests.report.estimates import MIB, TRAINING, hostile

EVILS = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 2">',
    "' onmouseover='window.hacked = 3",
    "</script><script>window.hacked = 4</script><!--",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "${window.hacked = 5} &lt;b&gt; %3Cscript%3E \\u003cscript\\u003e",
    "n" * 10_000,
)


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def real() -> Estimate:
    return analyzer.analyze(MODELS / "cnn.py", batch=4, mode="train", optimizer="adam", device="2GiB")


@pytest.fixture
def show(driver: Any, tmp_path: Path) -> Callable[[str], Any]:
    """Open a page, wait until it says it is ready; nothing may have gone wrong."""

    def show(text: str) -> Any:
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
        driver.get_log("browser")
        driver.get(path.as_uri())
        assert driver.execute_script("return document.documentElement.dataset.ready") == "yes"
        assert driver.get_log("browser") == []
        return driver

    return show


def element(driver: Any, selector: str) -> Any:
    return driver.find_element("css selector", selector)


def text_of(driver: Any, selector: str) -> str:
    return str(driver.execute_script("return document.querySelector(arguments[0]).textContent", selector))


def hover(driver: Any, event: int, click: bool = False) -> None:
    """The pointer over an event of the course."""
    from selenium.webdriver import ActionChains

    over = element(driver, ".u-over")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", over)
    left = driver.execute_script(
        "return document.querySelector('.view').timeline.plot().valToPos(arguments[0], 'x')", event
    )
    actions = ActionChains(driver).move_to_element_with_offset(
        over, round(left - over.size["width"] / 2), 10 - over.size["height"] // 2
    )
    (actions.click() if click else actions).perform()


def test_hovering_tells_the_event(show: Any, real: Estimate) -> None:
    driver = show(html.render(real))
    blocks, line = real.allocations, real.timeline
    for place in (0, len(blocks.born) // 2, len(blocks.born) - 1):
        event, origin = blocks.born[place], blocks.origins[blocks.origin[place]]
        hover(driver, event)
        found = driver.execute_script("return document.querySelector('.view').timeline.plot().cursor.idx")
        assert found == event
        told = text_of(driver, ".readout")
        assert told.startswith(f"event {event + 1:,} of {len(line.delta):,}")
        shape = "x".join(map(str, origin.shape))
        for word in (
            size(line.allocated[event]),
            size(line.reserved[event]),
            f"takes {size(blocks.nbytes[place])}",
        ):
            assert word in told
        for word in (
            attribution.operator_name(origin.name),
            shape,
            origin.dtype,
            origin.category,
            origin.module,
            origin.source,
            origin.rule,
        ):
            assert word in told
    died = sorted(event for event in blocks.died if event >= 0)[-9]  # the last stands on the edge
    hover(driver, died)
    assert driver.execute_script("return document.querySelector('.view').timeline.plot().cursor.idx") == died
    assert "gives back" in text_of(driver, ".readout")
    assert driver.get_log("browser") == []


def test_clicking_shows_the_live_set_of_that_moment(show: Any, real: Estimate) -> None:
    driver = show(html.render(real))
    blocks, line = real.allocations, real.timeline
    at_peak = blocks.alive(real.peak_event)
    assert f"at the peak ({real.peak_at}): {size(real.peak_allocated)} in {len(at_peak)} blocks" == text_of(
        driver, ".moment"
    )
    event = len(line.delta) // 3
    hover(driver, event, click=True)
    alive = blocks.alive(event)
    until(
        driver,
        "return document.querySelector('.moment').textContent.startsWith(arguments[0])",
        f"after event {event + 1}",
    )
    assert text_of(driver, ".moment").endswith(f"{size(line.allocated[event])} in {len(alive)} blocks")
    until(
        driver,
        "return document.querySelector('.count').textContent.startsWith(arguments[0])",
        f"{len(alive)} of {len(alive)} tensors",
    )
    assert text_of(driver, ".count").endswith(size(line.allocated[event]))
    shown = driver.execute_script(
        "return Tabulator.findTable('.tensors')[0].getData().map((row) => [row.name, row.nbytes, row.shape])"
    )
    expected = [
        (
            attribution.operator_name(blocks.origins[blocks.origin[p]].name),
            blocks.nbytes[p],
            "x".join(map(str, blocks.origins[blocks.origin[p]].shape)),
        )
        for p in alive
    ]
    assert Counter(map(tuple, shown)) == Counter(expected)
    held = [s for s in real.segments if s.born <= event and (s.died < 0 or s.died > event)]
    assert text_of(driver, ".held").startswith(
        f"{len(held)} segments hold {size(line.reserved[event])}: {size(line.allocated[event])} in"
    )
    assert len(driver.find_elements("css selector", ".segment")) == min(len(held), 24)


def test_searching_and_sorting_the_table(show: Any, real: Estimate) -> None:
    driver = show(html.render(real))
    blocks = real.allocations
    alive = blocks.alive(real.peak_event)
    until(
        driver,
        "return document.querySelector('.count').textContent.startsWith(arguments[0])",
        f"{len(alive)} of",
    )
    element(driver, ".search").send_keys("CONV weight")
    wanted = []
    for place in alive:
        origin = blocks.origins[blocks.origin[place]]
        shown = (
            attribution.operator_name(origin.name), "x".join(map(str, origin.shape)), origin.dtype, origin.category, attribution.operator_name(origin.operator),
            origin.module, origin.source, origin.phase, origin.rule,
        )  # fmt: skip
        if all(word in "\n".join(shown).lower() for word in ("conv", "weight")):
            wanted.append(place)
    assert 0 < len(wanted) < len(alive)
    total = sum(blocks.nbytes[place] for place in wanted)
    until(
        driver, "return document.querySelector('.count').textContent === arguments[0]",
        f"{len(wanted)} of {len(alive)} tensors, {size(total)}",
    )  # fmt: skip
    element(driver, ".search").clear()
    element(driver, ".search").send_keys(" ")
    until(
        driver,
        "return document.querySelector('.count').textContent.startsWith(arguments[0])",
        f"{len(alive)} of",
    )

    def first(field: str) -> str:
        return str(driver.execute_script(
            "return document.querySelector(`.tabulator-row .tabulator-cell[tabulator-field=${arguments[0]}]`).textContent", field
        ))  # fmt: skip

    assert first("nbytes") == size(max(blocks.nbytes[place] for place in alive))
    for _, least in ((0, True), (1, False)):
        driver.execute_script(
            "document.querySelector('.tabulator-col[tabulator-field=born] .tabulator-col-content').click()"
        )
        choose = min if least else max
        until(
            driver,
            "return document.querySelector('.tabulator-row .tabulator-cell[tabulator-field=born]').textContent === arguments[0]",
            str(choose(blocks.born[place] for place in alive) + 1),
        )


def test_the_icicle_is_the_breakdown_and_opens(show: Any, real: Estimate) -> None:
    driver = show(html.render(real))
    driver.execute_script(
        "const by = document.querySelector('.by'); by.value = 'category'; by.dispatchEvent(new Event('change'))"
    )
    cells = driver.execute_script(
        "return [...document.querySelectorAll('.icicle button')].map((cell) => [cell.style.top, cell.textContent, cell.title])"
    )
    # A cell says its whole name, or at least a beginning that says something, or nothing; its title says all.
    second = {title.partition(":")[0]: (shown, title) for top, shown, title in cells if top == "25px"}
    for name, nbytes in attribution.rows(real, "category"):
        if nbytes > 0.01 * real.peak_allocated:
            shown, title = second[name]
            assert title.startswith(f"{name}: {size(nbytes)},")
            assert shown in ("", name) or (
                len(shown) >= 9 and shown.endswith("…") and name.startswith(shown[:-1])
            )
    largest = attribution.rows(real, "category")[0][0]
    driver.execute_script(
        "[...document.querySelectorAll('.icicle button')].find((cell) => cell.textContent === arguments[0]).click()",
        largest,
    )
    assert text_of(driver, ".icicle button") == largest
    assert [step.text for step in driver.find_elements("css selector", ".trail button")] == [
        "everything",
        largest,
    ]


def test_the_keyboard_does_what_the_pointer_does(show: Any, real: Estimate) -> None:
    driver = show(html.render(real))
    course = element(driver, ".timeline")
    for keys in ("\ue014", "\ue014", "\ue007"):  # right, right, Enter
        course.send_keys(keys)
    until(
        driver,
        "return document.querySelector('.moment').textContent.startsWith(arguments[0])",
        f"after event {real.peak_event + 3}",
    )
    width = "const x = document.querySelector('.view').timeline.plot().scales.x; return x.max - x.min"
    whole = driver.execute_script(width)
    course.send_keys("+")
    until(driver, f"{width} < arguments[0] * 0.7", whole)
    course.send_keys("0")
    until(driver, f"{width} === arguments[0]", whole)
    course.send_keys("p")
    until(driver, "return document.querySelector('.moment').textContent.startsWith('at the peak')")


def brightness(driver: Any) -> float:
    found = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", found)[:3])) / 3


def test_dark_light_phone_and_print(show: Any, real: Estimate, tmp_path: Path) -> None:
    driver = show(html.render(real))
    assert brightness(driver) > 200
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    until(driver, "return document.documentElement.dataset.theme === 'dark'")
    assert brightness(driver) < 60
    element(driver, "#theme").click()
    assert brightness(driver) > 200
    for width in (375, 768, 1280):
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        driver.refresh()
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        assert driver.save_screenshot(str(tmp_path / f"{width}.png"))
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shown = "return getComputedStyle(document.querySelector(arguments[0])).display"
    assert driver.execute_script(shown, ".tensors") == "none" == driver.execute_script(shown, ".controls")
    assert driver.execute_script(shown, ".timeline") != "none"
    assert driver.get_log("browser") == []


@pytest.mark.parametrize("evil", EVILS, ids=range(len(EVILS)))
def test_hostile_names_are_text(show: Any, evil: str) -> None:
    named = hostile(evil)
    driver = show(html.render(named, formats.View(top=5)))
    until(driver, "return document.querySelector('.tabulator-row')")
    hover(driver, 0)
    driver.execute_script(
        "for (const cell of document.querySelectorAll('.icicle button')) cell.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}))"
    )
    assert driver.execute_script("return window.hacked") is None
    assert (
        driver.execute_script(
            "return document.querySelectorAll('img, iframe, [onmouseover], [onerror]').length"
        )
        == 0
    )
    assert driver.execute_script("return document.scripts.length") == 1 + len(page.TIMELINE)
    clean = evil if "\x1b" not in evil else "red"
    start = clean[:40]
    for place in ("h1", ".readout", ".icicle", ".tabulator-row"):
        assert start in text_of(driver, place), place
    tables = driver.execute_script(
        "return [...document.querySelectorAll('table.plain code')].map((code) => code.textContent)"
    )
    assert any(shown.startswith(start) for shown in tables)
    assert driver.get_log("browser") == []
    width = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]


def test_the_page_allows_no_other_script(show: Any) -> None:
    driver = show(html.render(TRAINING))
    driver.execute_script(
        "const evil = document.createElement('script'); evil.textContent = 'window.hacked = 1'; document.body.append(evil);"
    )
    assert driver.execute_script("return window.hacked") is None
    assert any("Content Security Policy" in entry["message"] for entry in driver.get_log("browser"))


def many(count: int) -> Estimate:
    """An estimate of `count` events: blocks come and go, names, modules and lines as a large program has them."""
    allocated, reserved, delta, label, category, phase = [], [], [], [], [], []
    born, died, nbytes, origin, address = [], [], [], [], []
    kinds = ("parameters", "activations", "saved for backward", "gradients", "scratch")
    origins = tuple(
        Origin(f"transformer.h.{n}.mlp.c_fc.weight", kinds[n % 5], "float32", (1024, 4096, n), "aten::mm.default",
               f"transformer.h.{n % 48}.mlp.c_fc", f"src/transformers/models/gpt2/modeling_gpt2.py:{n}", "forward", "tensor")
        for n in range(2000)
    )  # fmt: skip
    alive: list[int] = []
    now = 0
    for event in range(count):
        wave = (event * 7919) % 100
        if alive and (wave < 40 or len(alive) > 12_000):
            place = alive.pop((event * 31) % len(alive))
            died[place] = event
            change = -nbytes[place]
            kind = origins[origin[place]].category
        else:
            place = len(born)
            change = 512 * (1 + (event * 131) % 5000)
            origin.append(event % len(origins))
            kind = origins[origin[-1]].category
            born.append(event)
            died.append(-1)
            nbytes.append(change)
            address.append(0x7F0000000000 + place * 4 * MIB)
            alive.append(place)
        now += change
        allocated.append(now)
        reserved.append(64 * 2**30)
        delta.append(change)
        label.append(origins[origin[place]].name)
        category.append(kind)
        phase.append(f"{event * 3 // count}.forward")
    peak = max(range(count), key=lambda event: allocated[event])
    blocks = Allocations(
        tuple(born), tuple(died), tuple(nbytes), tuple(nbytes), tuple(address), tuple(origin), origins
    )
    line = Timeline(*(tuple(column) for column in (allocated, reserved, delta, label, category, phase)))
    return replace(
        TRAINING, timeline=line, allocations=blocks, segments=(SegmentRow(0x7F0000000000, 64 * 2**40, 0),), peak_event=peak,
        peak_allocated=allocated[peak], iterations=(0, count // 3, 2 * count // 3),
    )  # fmt: skip


def test_a_hundred_thousand_events_open_fast_and_stay_responsive(show: Any, driver: Any) -> None:
    estimate = many(100_000)
    made = html.render(estimate)
    assert len(made.encode()) < 15_000_000

    def opening_ms(page: str) -> float:
        """The least of three: the machine may be busy with other tests."""
        times = []
        for _ in range(3):
            show(page)
            times.append(driver.execute_script(
                "const [entry] = performance.getEntriesByType('navigation'); return entry.domContentLoadedEventEnd - entry.startTime"
            ))  # fmt: skip
        return min(times)

    assert opening_ms(html.render(many(10_000))) * 20 > opening_ms(made)  # linear, and the page itself
    alive = estimate.allocations.alive(estimate.peak_event)
    assert len(alive) > 10_000
    until(
        driver,
        "return document.querySelector('.count').textContent.startsWith(arguments[0])",
        f"{len(alive):,} of",
    )
    # The table draws what is on the screen and little more.
    assert driver.execute_script("return document.querySelectorAll('.tabulator-row').length") < 200
    took = driver.execute_async_script(
        """const done = arguments[arguments.length - 1], start = performance.now(), plot = document.querySelector('.view').timeline.plot();
        plot.setScale('x', {min: 20000, max: 60000});
        requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));"""
    )
    assert took < 2000, took
    start = time.monotonic()
    element(driver, ".search").send_keys("h.17.mlp")
    until(
        driver,
        "return !document.querySelector('.count').textContent.startsWith(arguments[0])",
        f"{len(alive):,} of",
    )
    assert time.monotonic() - start < 4


def test_two_estimates_stand_side_by_side(show: Any, real: Estimate) -> None:
    after = analyzer.analyze(MODELS / "cnn.py", batch=6, mode="train", optimizer="adam", device="2GiB")
    made = formats.render("difference", "html", compare(real, after))
    assert isinstance(made, str)
    driver = show(made)
    moments = [entry.text for entry in driver.find_elements("css selector", ".moment")]
    assert [re.findall(r": (.*) in", moment)[0] for moment in moments] == [
        size(real.peak_allocated),
        size(after.peak_allocated),
    ]
    first, second = (entry.location["x"] for entry in driver.find_elements("css selector", ".timeline"))
    assert second > first + 300


def test_plans_and_allocators_open(show: Any, tmp_path: Path) -> None:
    keywords = {"mode": "train", "device": "2GiB"}
    curve = analyzer.sweep(MODELS / "linear.py", range(1, 5), **keywords)
    driver = show(str(formats.render("curve", "html", curve)))
    assert len(driver.find_elements("css selector", "table.plain tr")) == 1 + len(curve.rows)
    assert f"{mib(curve.rows[2].peak_allocated)}</td>" in driver.page_source
    driver.execute_script("document.querySelector('.chart .u-over').scrollIntoView()")
    assert driver.find_elements("css selector", ".chart canvas")
    found = analyzer.fit(MODELS / "linear.py", limit="128MiB", **keywords)
    driver = show(str(formats.render("fits", "html", [found])))
    assert f"largest batch {found.batch:,}" in driver.page_source and driver.find_elements(
        "css selector", ".timeline canvas"
    )
    strategies = analyzer.what_if(MODELS / "linear.py", batch=4, **keywords)
    driver = show(str(formats.render("strategies", "html", strategies)))
    assert len(driver.find_elements("css selector", "table.plain svg")) == sum(
        s.estimate is not None for s in strategies
    )
    made = tmp_path / "allocators.html"
    assert (
        main(
            [
                "allocators",
                str(MODELS / "linear.py"),
                "--batch",
                "4",
                "--format",
                "html",
                "-o",
                str(made),
                "-q",
            ]
        )
        == 0
    )
    driver = show(made.read_text())
    assert driver.find_elements("css selector", "table.plain svg")


MODEL = """
from torch import nn

EVIL = {evil!r}


def make_model():
    model = nn.Sequential(nn.Linear(64, 64))
    model.add_module(EVIL, nn.Linear(64, 64))
    return model
"""


@pytest.mark.parametrize(
    "evil", [EVILS[1], EVILS[3].replace(".", ""), EVILS[6]], ids=["img", "script", "long"]
)
def test_a_model_with_hostile_names_is_text_from_end_to_end(show: Any, tmp_path: Path, evil: str) -> None:
    evil = evil.replace(".", "")  # which a module's name cannot have
    folder = tmp_path / "<b onclick='x'>\"&"
    folder.mkdir()
    (folder / "it's \"<i>.py").write_text(MODEL.format(evil=evil))
    spec = analyzer.TensorSpec((8, 64), "float32")
    estimate = analyzer.analyze(folder / "it's \"<i>.py", (spec,), mode="train", loss="sum", device="h200")
    assert any(evil in row.module for row in estimate.tensors)
    driver = show(html.render(estimate))
    until(driver, "return document.querySelector('.tabulator-row')")
    element(driver, ".search").send_keys(evil[:12])
    until(
        driver,
        "return [...document.querySelectorAll('.tabulator-cell[tabulator-field=module]')].some((cell) => cell.textContent === arguments[0])",
        evil[:400],
    )
    assert driver.execute_script("return window.hacked") is None
    assert driver.execute_script("return document.querySelectorAll('img, i[onclick], b').length") == 0
    assert driver.get_log("browser") == []
    assert "\x1b" not in text.render(estimate, formats.View(by="module"))


def test_an_onnx_model_with_hostile_names_is_text_from_end_to_end(show: Any, tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    nodes, last = [], "x"
    for number, evil in enumerate(EVILS):
        nodes.append(helper.make_node("Sin", [last], [f"{evil}{number}"], name=f"node {evil}"))
        last = f"{evil}{number}"
    shape = ["batch", 1024]
    graph = helper.make_graph(
        nodes, EVILS[0], [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)],
    )  # fmt: skip
    path = tmp_path / "model.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    estimate = analyzer.analyze(path, batch=64, device="h200")
    driver = show(html.render(estimate))
    for event in (1, len(estimate.timeline.delta) // 2, len(estimate.timeline.delta) - 2):
        hover(driver, event, click=True)
    assert driver.execute_script("return window.hacked") is None
    assert driver.execute_script("return document.querySelectorAll('img').length") == 0
    assert driver.get_log("browser") == []
    names = driver.execute_script("return DATA.views[0].origins.map((origin) => origin.name)")
    assert any("<script>" in name for name in names) and not any("\x1b" in name for name in names)
    assert "\x1b" not in text.render(estimate, formats.View(by="tensor", top=0))


def test_the_keyboard_reaches_the_content_and_one_stop_of_the_flame_graph(show: Any, real: Estimate) -> None:
    from selenium.webdriver import ActionChains, Keys

    driver = show(html.render(real))
    focused = "return document.activeElement"
    ActionChains(driver).send_keys(Keys.TAB).perform()
    assert driver.execute_script(focused).text == "Skip to the content"
    assert driver.execute_script("return document.activeElement.getBoundingClientRect().top") >= 0
    ActionChains(driver).send_keys(Keys.ENTER).perform()
    assert driver.execute_script(focused).get_attribute("id") == "content"
    stops = (
        "return [...document.querySelectorAll('.icicle button')].filter((cell) => cell.tabIndex === 0).length"
    )
    cells = driver.find_elements("css selector", ".icicle button")
    assert len(cells) > 3 and driver.execute_script(stops) == 1
    driver.execute_script("arguments[0].focus()", cells[0])
    below = driver.execute_script("return document.activeElement.style.top")
    for key, goes in (
        (Keys.ARROW_DOWN, True),
        (Keys.ARROW_RIGHT, False),
        (Keys.ARROW_LEFT, False),
        (Keys.ARROW_UP, True),
    ):
        ActionChains(driver).send_keys(key).perform()
        now = driver.execute_script("return document.activeElement.style.top")
        assert (now != below) == goes, key
        below = now
        assert driver.execute_script(stops) == 1
    assert driver.execute_script("return document.activeElement === arguments[0]", cells[0])
    ActionChains(driver).send_keys(Keys.ARROW_DOWN, Keys.ENTER).perform()
    assert driver.execute_script(stops) == 1
    assert driver.execute_script("return document.activeElement.closest('.icicle') !== null")


def test_landmarks_scopes_and_what_wrote_the_page(show: Any, real: Estimate, tmp_path: Path) -> None:
    driver = show(html.render(real))
    for landmark in ("header", "main", "footer"):
        assert len(driver.find_elements("css selector", f"body > {landmark}")) == 1
    assert driver.find_elements("css selector", "table.plain th:not([scope])") == []
    assert driver.find_elements("css selector", "main h2") and not driver.find_elements(
        "css selector", "th:empty"
    )
    assert re.fullmatch(
        rf"analyzer {re.escape(analyzer.__version__)} · \d{{4}}-\d\d-\d\d", text_of(driver, "footer")
    )
    path = tmp_path / "typed.html"
    words = [
        str(MODELS / "cnn.onnx"),
        "--batch",
        "4",
        "--device",
        "RTX 4090",
        "--format",
        "html",
        "-o",
        str(path),
    ]
    assert main(words) == 0
    assert text_of(show(path.read_text()), "footer").endswith(f" · {shlex.join(['analyze', *words])}")
    assert text_of(show(html.render(real)), "footer").count("·") == 1  # Python asked for this one


def test_a_date_may_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert f"analyzer {analyzer.__version__} · 2023-11-14</footer>" in page.render("title", "")


def test_plans_begin_with_a_verdict_and_say_what_to_type(show: Any) -> None:
    job: dict[str, Any] = {"batch": 4096, "mode": "train", "optimizer": "adam"}
    ways = analyzer.what_if(MODELS / "linear.py", device="600MiB", **job)
    driver = show(str(formats.render("strategies", "html", ways)))
    assert text_of(driver, "main p.no").startswith("does not fit: needs ")
    typed = [way.typed for way in ways if way.typed and way.estimate is not None]
    shown = [code.text for code in driver.find_elements("css selector", "td:first-child code")]
    assert typed and shown == typed
