"""The report of a rollout as an operator sees it: on a phone, in a real browser."""

from __future__ import annotations

import os
import subprocess

import pytest
import rollout_play
from browser import Browser
from deployment import ROOT


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a rollout that failed on one of eight hosts."""
    directory = tmp_path_factory.mktemp("rollout")
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_ACTION_PLUGINS": f"{ROOT}/plugins/action:{ROOT}/tests/unit/action_plugins",
        "ROLLOUT_REPORT_DIRECTORY": str(directory / "reports"),
    }
    arguments = rollout_play.write(directory, fails="n3")
    done = subprocess.run(["ansible-playbook", *arguments], env=environment, text=True, capture_output=True)
    assert done.returncode == 2, done.stdout
    (path,) = (directory / "reports").glob("*.html")
    return path


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


SEEN = """[...document.querySelectorAll("{}")].filter(e => e.checkVisibility()).map(e => e.innerText.trim())"""


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_lies_beyond_the_edge_of_the_screen(browser, page, width):
    browser.open(page, width)
    assert browser.value("document.documentElement.scrollWidth") <= browser.value("innerWidth")
    beyond = "[...document.body.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
    assert browser.value(f"{beyond}.map(e => e.outerHTML.slice(0, 80))") == []


def test_the_first_screen_of_a_phone_has_the_result_and_the_cause(browser, page):
    browser.open(page, 390)
    assert browser.value(SEEN.format("header .state")) == ["3 of 8 hosts proved; not: n3, n5, n6 and 2 others."]
    first = "document.querySelector('#causes pre')"
    assert browser.value(f"{first}.innerText") == rollout_play.CAUSE
    assert browser.value(f"{first}.getBoundingClientRect().bottom < innerHeight")
    assert browser.value(SEEN.format("#causes h3")) == ["n3 gone back", "n5, n6, n7, n8 not reached"]


def test_each_host_has_its_phases_drawn_to_scale(browser, page):
    browser.open(page, 390)
    assert [text.split()[0] for text in browser.value(SEEN.format(".run b"))] == ["n1", "n2", "n3", "n4"]
    widths = browser.value(
        "[...document.querySelectorAll('.run:nth-of-type(3) i')].map(e => e.getBoundingClientRect().width)"
    )
    drain, load, prove, back = widths
    assert load > drain > 2
    assert back > prove > 0


def test_the_hops_of_a_host_that_failed_are_open_and_those_of_the_others_a_tap_away(browser, page):
    browser.open(page, 390)
    assert browser.value(SEEN.format("#settings td.verdict")) == ["match", "differs", "differs*"]
    browser.value("document.querySelector('#settings summary').click()")
    assert browser.value(SEEN.format("#settings td.verdict"))[:3] == ["match", "match", "differs*"]


def test_it_loads_nothing_and_runs_no_script(browser, page):
    browser.open(page, 390)
    assert browser.value("performance.getEntriesByType('resource').length") == 0
    assert browser.value("document.scripts.length") == 0


def test_it_follows_the_colours_of_the_phone(browser, page):
    colours = []
    for dark in (False, True):
        browser.open(page, 390, dark=dark)
        colours.append(browser.value("getComputedStyle(document.body).backgroundColor"))
    assert colours[0] != colours[1]
