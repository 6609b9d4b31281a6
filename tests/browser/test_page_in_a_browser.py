"""The report page in a real browser: looks, mouse, finger, keyboard, print, downloads; no fault in any."""

import csv
import io
import json
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import spreadout as so
from browser import OVERFLOW, POOR_CONTRAST, browser, opened
from spreadout.data.describe import describe
from spreadout.methods.fedss import FedSS
from spreadout.report import live
from spreadout.report.audit_view import write_audit
from spreadout.report.data_view import page as data_page
from spreadout.report.page import write_page
from spreadout.runs.arms import Arm, arms_of
from spreadout.runs.audit import Watched
from tiny import tiny, tiny_data
from toys import several_classes, tagged, tagged_config

HOSTILE = "</script><img onerror=alert(1)>\"' \u202eright to left " + "x" * 500
NAMES = ["circle", "square", HOSTILE, "triangle <b>", "", "ellipse", "Straße", "8"]
TABS = ["Overview", "Curves", "Bytes", "Classes", "Clients", "Map", "Privacy", "Config"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def arms(tmp_path_factory: pytest.TempPathFactory) -> list[Arm]:
    """Two real variants under two seeds, and one with all data in one place."""
    base = {
        "rounds": 4,
        "eval": {"every": 1, "metrics": ["P@1", "mean rank"]},
        "model": {"hidden": [8], "dim": 6},
    }
    variants = {
        "spread": so.Experiment.of({**base, "method": {"name": "fedaws"}}),
        "plain": so.Experiment.of({**base, "method": {"name": "baseline-1"}}),
        "oracle": so.Experiment.of({**base, "method": {"name": "centralized"}}),
    }
    out = tmp_path_factory.mktemp("runs") / "all"
    data = replace(several_classes(), class_names=NAMES)
    so.compare(variants, data=data, seeds=[0, 1], out=out, device="cpu")
    return arms_of(out)


@pytest.fixture(scope="module")
def page(arms: list[Arm], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(arms, tmp_path_factory.mktemp("page") / "report.html", title="three arms")


@pytest.fixture(scope="module")
def hostile(arms: list[Arm], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names nobody expects, more arms than there are colours, and numbers that are none."""
    many = [replace(arms[i % 3], label=f"{i} {HOSTILE}") for i in range(11)]
    broken = [{**record, "P@1": None, "loss": None} for record in arms[0].histories[0]]
    summary = {
        **arms[0].summaries[0],
        "dataset": HOSTILE,
        "findings": [{"name": HOSTILE, "sign": "a", "remedy": "b"}],
    }
    many.append(replace(arms[0], label="NaN", summaries=[summary], histories=[broken]))
    return write_page(many, tmp_path_factory.mktemp("hostile") / "report.html", title=HOSTILE)


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1024, "dark"), (1920, "light")])
def test_every_tab_fits_and_can_be_read(
    chromium: Any, page: Path, hostile: Path, width: int, scheme: str
) -> None:
    for path in (page, hostile):
        with opened(chromium, path, width, color_scheme=scheme) as one:
            assert one.tabs() == TABS
            for tab in TABS:
                one.open(tab)
                assert one.page.evaluate(OVERFLOW) == [], tab
                if path == page:
                    assert one.page.evaluate(POOR_CONTRAST) == [], tab
            small = "() => [...document.querySelectorAll('.plot svg text')].filter((t) => t.getBoundingClientRect().height && t.getBoundingClientRect().height < 9).length"
            assert one.page.evaluate(small) == 0
            if path == hostile:  # nothing in a name is ever run
                assert one.page.locator("img").count() == 0
                told = json.loads(one.page.evaluate("document.getElementById('runs').textContent"))
                assert told["arms"][0]["label"] == f"0 {HOSTILE}"
                assert one.page.locator("h1").inner_text().startswith("</script><img")


def test_what_is_drawn_is_what_was_measured(chromium: Any, page: Path, arms: list[Arm]) -> None:
    """Every dot of the score curve stands where its value belongs on the axis."""
    with opened(chromium, page) as one:
        one.open("Curves")
        found = one.page.evaluate(
            """() => { const s = document.querySelector('#curves figure svg');
            return {ticks: [...s.querySelectorAll('.tick[text-anchor=end]')].map((t) => [Number(t.textContent), Number(t.getAttribute('y')) - 4]),
                    dots: [...s.querySelectorAll('.dot')].map((d) => Number(d.getAttribute('cy')))}; }"""
        )
        (low, at_low), (high, at_high) = found["ticks"][0], found["ticks"][-1]
        values = [low + (y - at_low) / (at_high - at_low) * (high - low) for y in found["dots"]]
        expected = [np.mean([h[i]["P@1"] for h in arm.histories]) for arm in arms for i in range(5)]
        assert values == pytest.approx(expected, abs=0.02)
        beside = one.page.locator("#curves figure").first.locator(".entry").all_text_contents()
        references = arms[0].summaries[0]["references"]
        assert [text.rpartition(" ")[0] for text in beside] == list(
            references
        )  # lines of what it is compared with
        assert one.page.locator("#curves figure").first.locator(".plot .reference-line").count() == len(
            references
        )


def test_hover_tap_and_arrow_keys_tell_values(chromium: Any, page: Path, arms: list[Arm]) -> None:
    with opened(chromium, page, 400, has_touch=True) as one:
        one.open("Curves")
        plot = one.page.locator("#curves figure svg[role=img]").first
        box = plot.bounding_box()
        one.page.touchscreen.tap(box["x"] + box["width"] - 20, box["y"] + 40)
        tip = one.page.locator("#curves .tip").first
        assert "round 4" in tip.inner_text()
        assert f"{np.mean(arms[1].metric('P@1')):.2f}".rstrip("0").rstrip(".") in tip.inner_text()
        inside = "(t) => { const a = t.getBoundingClientRect(), b = t.closest('.plot').getBoundingClientRect(); return a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1; }"
        assert tip.evaluate(inside)
        assert tip.bounding_box()["height"] < 130  # a line for each arm
        plot.focus()
        plot.press("Home")
        plot.press("ArrowRight")
        assert "round 1; spread: " in one.page.locator("#curves [aria-live]").first.inner_text()
        plot.press("Escape")
        assert tip.is_hidden()
        one.open("Clients")
        dots = one.page.locator("#clients figure svg[role=img]").first
        dots.focus()
        dots.press("End")
        assert (
            "client 2; examples held: 12" in one.page.locator("#clients [aria-live]").first.inner_text()
        )
        one.open("Classes")
        cells = one.page.locator("#classes figure[data-kind=confusion] svg[role=img]")
        cells.focus()
        cells.press("ArrowRight")
        said = one.page.locator("#classes figure[data-kind=confusion] [aria-live]").inner_text()
        pairs = {(a, b): n for a, b, n in (arms[0].details or {})["confused"]}
        assert said.startswith("circle taken for circle:")
        assert said.endswith(f"({pairs.get((0, 0), 0)} examples)")
        wrong = max(n for (a, b), n in pairs.items() if a != b)
        assert one.page.locator("#classes .often tbody tr").first.locator("td").nth(
            2
        ).inner_text() == str(wrong)


def test_tabs_by_keyboard_and_by_address(chromium: Any, page: Path) -> None:
    with opened(chromium, page) as one:
        first = one.page.get_by_role("tab", name="Overview")
        first.focus()
        first.press("ArrowRight")
        assert one.page.locator("#curves").is_visible()
        assert one.page.evaluate("document.activeElement.textContent") == "Curves"
        one.page.keyboard.press("ArrowLeft")
        one.page.keyboard.press("ArrowLeft")
        assert one.page.locator("#config").is_visible()
        assert one.page.url.endswith("#config")
        one.page.reload()
        assert one.page.locator("#config").is_visible()
        differs = one.page.locator("#config tr.differs").all_inner_texts()
        assert any(row.startswith("method.name") and "baseline-1" in row for row in differs)
        assert not any(row.startswith("rounds") for row in differs)


def test_any_quantity_any_axis_and_bytes_to_reach_a_score(
    chromium: Any, page: Path, arms: list[Arm]
) -> None:
    with opened(chromium, page) as one:
        one.open("Curves")
        view = one.page.locator("#curves figure").first
        for wanted in ("mean rank", "loss", "max_cosine", "effective_rank", "weights_norm"):
            view.locator("select").first.select_option(wanted)
            assert view.locator(".line").count() == 3, wanted
        view.locator("select").nth(1).select_option("seconds")
        assert "seconds" in view.locator("svg[role=img]").get_attribute("aria-label")
        one.open("Bytes")
        view = one.page.locator("#bytes figure")
        assert view.locator(".line").count() == 2  # what is in one place moves nothing
        view.locator("select").nth(1).select_option("down")
        view.locator("select").nth(2).select_option("log")
        goal = max(np.mean([h[i]["P@1"] for h in arms[0].histories]) for i in range(5))
        view.locator("input").fill(repr(float(goal)))
        rows = [
            [c.strip() for c in row.split("\t")]
            for row in view.locator(".reached tbody tr").all_inner_texts()
        ]
        place = next(i for i in range(5) if np.mean([h[i]["P@1"] for h in arms[0].histories]) >= goal)
        assert rows[0][:2] == ["spread", str(place)]
        view.locator("input").fill("101")
        assert all("never" in row for row in view.locator(".reached tbody tr").all_inner_texts())


def test_search_and_neighbours_on_the_map(chromium: Any, page: Path, arms: list[Arm]) -> None:
    with opened(chromium, page) as one:
        one.open("Map")
        one.page.get_by_label("Find a class on the maps").fill("squ")
        said = one.page.locator("#map .chosen").first.inner_text()
        assert said.startswith("square, nearest: ")
        assert said.count("cosine") == 6
        one.page.get_by_label("Find a class on the maps").fill("3")  # by its number
        assert one.page.locator("#map .chosen").first.inner_text().startswith("triangle <b>, nearest: ")
        one.page.get_by_label("Find a class on the maps").fill("nothing like it")
        assert one.page.locator("#map .chosen").first.inner_text() == ""
        canvas = one.page.locator("#map canvas").first
        size = canvas.bounding_box()["width"]
        x, y = (arms[0].projection or {})["classes"][3]
        at = {"x": (x / 1.12 + 1) * size / 2, "y": (1 - y / 1.12) * size / 2}
        canvas.hover(position=at)
        assert one.page.locator("#map .tip").first.is_visible()
        canvas.click(position=at)
        assert "nearest: " in one.page.locator("#map .chosen").first.inner_text()
        canvas.press("+")
        canvas.press("ArrowLeft")
        canvas.press("Escape")
        assert one.page.locator("#map .chosen").first.inner_text() == ""


def test_every_figure_is_saved_as_svg_png_and_csv(chromium: Any, page: Path) -> None:
    seen = set()
    for tab in TABS[1:6]:
        with opened(chromium, page) as one:  # Chromium itself drops an eleventh download in a row
            one.open(tab)
            figures = {
                f.get_attribute("data-kind"): f for f in one.page.locator(f"#{tab.lower()} figure").all()
            }
            for kind, figure in figures.items():
                seen.add(kind)
                saved = {}
                for form in ("SVG", "PNG", "CSV"):
                    with one.page.expect_download() as download:
                        figure.get_by_role("button", name=f"as {form}").click()
                    saved[form] = Path(download.value.path()).read_bytes()
                    assert download.value.suggested_filename.endswith(form.lower())
                assert "var(" not in saved["SVG"].decode()
                assert len(list(ElementTree.fromstring(saved["SVG"]).iter())) > 5
                assert saved["PNG"][:8] == b"\x89PNG\r\n\x1a\n"
                rows = list(csv.reader(io.StringIO(saved["CSV"].decode("utf-8-sig"))))
                assert len(rows) > 2
                assert len({len(row) for row in rows}) == 1
    assert seen == {"curves", "traffic", "bars", "lines", "confusion", "clients", "map"}


def test_print_shows_everything(chromium: Any, page: Path) -> None:
    with opened(chromium, page, color_scheme="dark") as one:
        one.page.emulate_media(media="print")
        for tab in TABS:
            assert one.page.locator(f"#{tab.lower()}").is_visible(), tab
        legend = one.page.locator("figure[data-kind=curves] .legend button").first
        assert legend.is_visible()
        assert one.page.locator(".tabs").is_hidden()
        assert (
            one.page.evaluate("getComputedStyle(document.querySelector('figure')).breakInside")
            == "avoid"
        )
        one.page.set_viewport_size({"width": 700, "height": 900})  # a sheet of paper
        assert (
            one.page.evaluate(
                "[...document.querySelectorAll('table')].filter((t) => t.getBoundingClientRect().right > 701).length"
            )
            == 0
        )
        assert one.page.pdf(format="A4")[:5] == b"%PDF-"


def test_the_page_of_a_data_set_has_log_axes_with_labels_in_their_places(
    chromium: Any, tmp_path: Path
) -> None:
    path = tmp_path / "data.html"
    path.write_text(data_page(describe(several_classes())), encoding="utf-8")
    with opened(chromium, path) as one:
        assert one.page.evaluate(OVERFLOW) == []
        figure = one.page.locator("figure").last
        ticks = figure.locator(".tick[text-anchor=middle]").evaluate_all(
            "(all) => all.map((t) => [Number(t.textContent), Number(t.getAttribute('x'))])"
        )
        assert len(ticks) >= 3
        (first, at), (last, end) = ticks[0], ticks[-1]
        for value, x in ticks[:-1]:
            expected = at + (end - at) * math.log(value / first) / math.log(last / first)
            assert x == pytest.approx(expected, abs=12)  # the outermost are moved to stay inside
        figure.locator("svg[role=img]").hover()
        assert figure.locator(".tip").is_visible()


def test_runs_that_have_little_to_show(chromium: Any, arms: list[Arm], tmp_path: Path) -> None:
    """One round, label sets, a folder of an earlier version: what is not there is not drawn."""
    short = so.Experiment.of({"rounds": 1, "eval": {"every": 5}, "model": {"hidden": [], "dim": 3}})
    so.run(short, data=several_classes(), out=tmp_path / "one", device="cpu")
    so.run(
        tagged_config({"name": "fedalc"}, rounds=1), data=tagged(), out=tmp_path / "sets", device="cpu"
    )
    earlier = replace(arms[0], details=None, projection=None, privacy=None, names=(), config={})
    for name, some, tabs in (
        ("one", arms_of(tmp_path / "one"), TABS),
        ("sets", arms_of(tmp_path / "sets"), TABS),
        ("earlier", [earlier], ["Overview", "Curves", "Bytes", "Classes"]),
    ):
        path = write_page(some, tmp_path / f"{name}.html", title=name)
        with opened(chromium, path) as one:
            assert one.tabs() == tabs
            for tab in tabs:
                one.open(tab)
                assert one.page.evaluate(OVERFLOW) == [], (name, tab)
            kinds = one.page.locator("figure").evaluate_all("(all) => all.map((f) => f.dataset.kind)")
            assert ("confusion" in kinds) == (name == "one")


def test_the_page_of_an_audit_shows_beliefs(chromium: Any, tmp_path: Path) -> None:
    data = several_classes().train
    requests = [(2, [2, 3, 4, 6]), (2, [2, 3, 4, 7]), (0, [0, 1, 2, 5])]
    watched = Watched(requests, data, FedSS(negatives=1), 4)
    path = write_audit(watched, tmp_path / "audit.html", title=HOSTILE)
    with opened(chromium, path, 700) as one:
        assert one.page.evaluate(OVERFLOW) == []
        assert one.page.evaluate(POOR_CONTRAST) == []
        view = one.page.locator("figure[data-kind=beliefs]")
        assert view.locator("option").all_inner_texts() == [
            "client 2, 2 requests",
            "client 0, 1 request",
        ]
        cells = view.locator("svg[role=img]")
        cells.focus()
        cells.press("ArrowRight")
        cells.press("ArrowRight")
        said = view.locator("[aria-live]").inner_text()
        last = [belief for belief in watched.beliefs() if belief["client"] == 2][-1]["posterior"]
        assert said == f"class 2, which client 2 holds: {100 * last[2]:.1f} % after 2 requests"


def test_a_page_of_runs_in_progress_loads_itself_again(
    chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect = pytest.importorskip("playwright.sync_api").expect
    monkeypatch.setattr(live, "EVERY", 0.05)
    calls = iter(range(100))
    with pytest.raises(so.Interrupted):
        so.run(
            tiny(rounds=3),
            data=tiny_data(),
            out=tmp_path / "run",
            stop=lambda: next(calls) == 1,
            device="cpu",
        )
    with live.LiveServer([tmp_path / "run"]) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = chromium.new_page()
        faults: list[str] = []
        page.on("console", lambda said: said.type in ("error", "warning") and faults.append(said.text))
        page.on("request", lambda one: one.url.startswith(server.address) or faults.append(one.url))
        page.goto(server.address)
        # Locators look from a world of their own; a string to evaluate is what the page's policy refuses.
        said = page.locator(".warning", has_text="is not finished")
        expect(said).to_contain_text("round 2 of 3", timeout=60_000)
        page.get_by_role("tab", name="Curves").click()
        page.locator("#curves select").first.select_option("loss")
        so.resume(tmp_path / "run", data=tiny_data(), device="cpu")
        expect(said).to_have_count(0, timeout=60_000)
        expect(page.locator("#curves")).to_be_visible()  # the tab that was open
        expect(page.locator("#curves .dot").first).to_be_visible()
        expect(page.locator("#curves select").first).to_have_value("loss")  # and what was chosen there
        page.close()
        server.shutdown()
    assert [one for one in faults if not one.endswith("favicon.ico") and "404" not in one] == []
