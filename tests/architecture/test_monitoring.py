"""The reference of metrics, the alert rules and the dashboard name what `/metrics` has, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from app.jobs.model import Outcome
from app.metrics.catalogue import METRICS
from app.schema import CLAIMABLE
from app.stopwatch import BOUNDS
from processes.states import ProcessState
from tests.kit.process import ROOT
from tests.kit.promql import asked

DEPLOY = ROOT / "deploy"
REFERENCE = ROOT / "docs" / "reference" / "metrics.md"


def test_the_reference_has_every_metric_as_it_is() -> None:
    rows = re.findall(r"^\| `(tidemill_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", REFERENCE.read_text(), re.MULTILINE)
    found = {name: (kind, tuple(re.findall(r"`(\w+)`", labels)), text) for name, kind, labels, text in rows}
    assert found == {each.name: (each.kind.value, each.labels, each.text) for each in METRICS.values()}
    assert f"in seconds: {', '.join(f'{each:g}' for each in BOUNDS)}." in REFERENCE.read_text()


def test_names_and_units_are_as_prometheus_wants_them() -> None:
    for each in METRICS.values():
        assert re.fullmatch(r"tidemill_[a-z]+(_[a-z]+)*", each.name), each
        assert each.name.endswith("_total") is (each.kind.value == "counter"), each
        assert not re.search(r"_(ms|milliseconds|minutes|hours|ratio_percent)(_|$)", each.name), each
        assert each.text.endswith("."), each
        assert not {"le", "job", "instance"} & set(each.labels), each


# The files for Prometheus and Grafana

ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((DEPLOY / "grafana" / "tidemill.json").read_text())
#: What Prometheus itself has.
OWN = {"up": {"job", "instance"}}
EXPORTED = OWN | {
    name: set(each.labels) | ({"le"} if name.endswith("_bucket") else set())
    for each in METRICS.values()
    for name in each.series
}
VALUES = {
    "lane": {"main", "low"},
    "kind": {model.NOUN for model in CLAIMABLE},
    "outcome": {each.value for each in Outcome},
    "state": {"ready", "later", "running", "parked", "active", "paused", "quarantined", "halted"}
    | {each.value for each in ProcessState},
}


def wrong(expression: str, *shown: str) -> list[str]:
    """What an expression names that there is not; `shown`: texts that use its labels."""
    found = asked(expression)
    unknown = sorted(found.metrics - EXPORTED.keys())
    if unknown or not found.metrics:
        return [f"{expression}: {unknown or 'no metric'}"]
    labels = set[str]().union(*(EXPORTED[name] for name in found.metrics))
    used = {label for text in shown for label in re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", text)}
    problems = [f"{expression}: {label}" for label in sorted((found.grouped | used) - labels)]
    for metric, label, value in found.matched:
        known = VALUES.get(label)
        if label not in EXPORTED[metric]:
            problems.append(f"{expression}: {metric} has no {label}")
        elif known and not value.startswith("$") and not set(value.split("|")) <= known:
            problems.append(f"{expression}: {label}={value}")
    return problems


def test_alerts_name_what_there_is() -> None:
    assert [each for rule in RULES for each in wrong(rule["expr"], *rule["annotations"].values())] == []
    assert len({rule["alert"] for rule in RULES}) == len(RULES) > 15
    for rule in RULES:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}, rule
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert set(rule["annotations"]) == {"summary", "runbook_url"}
        assert re.fullmatch(r"\d+[mh]", rule["for"])


def test_every_alert_says_what_to_do() -> None:
    headings: dict[Path, list[str]] = {}
    for rule in RULES:
        path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        page = ROOT / path
        found = headings.setdefault(page, re.findall(r"^#+ (\w+)$", page.read_text(), re.MULTILINE))
        assert anchor in [each.lower() for each in found], rule["alert"]
        assert rule["alert"] in found
    (page,) = headings
    explained = {each for each in headings[page] if each.startswith("Tidemill")}
    assert explained == {rule["alert"] for rule in RULES}


def test_the_dashboard_names_what_there_is() -> None:
    panels = DASHBOARD["panels"]
    assert len({each["id"] for each in panels}) == len(panels) > 10
    targets = [(target, panel) for panel in panels for target in panel["targets"]]
    assert [each for target, _ in targets for each in wrong(target["expr"], target["legendFormat"])] == []
    variables = {each["name"]: each["query"] for each in DASHBOARD["templating"]["list"]}
    assert variables["queue"] == "label_values(tidemill_queue_depth, queue)"
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels)))
    assert used <= variables.keys() | {"__rate_interval"}


def test_the_dashboard_or_an_alert_shows_every_metric() -> None:
    text = json.dumps(DASHBOARD) + json.dumps(ALERTS)
    shown = {each.name for each in METRICS.values() if any(re.search(rf"{name}\b", text) for name in each.series)}
    assert METRICS.keys() - shown == {"tidemill_build_info"}


def test_prometheus_is_told_to_bring_a_token() -> None:
    found = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (job,) = found["scrape_configs"]
    assert (job["job_name"], job["metrics_path"]) == ("tidemill", "/metrics")
    assert set(job["authorization"]) == {"type", "credentials_file"}
    assert found["rule_files"] == ["alerts.yml"]


@pytest.mark.parametrize(
    "expression",
    [
        "tidemill_worker",
        'tidemill_queue_depth{stat="ready"}',
        'tidemill_queue_depth{state="redy"}',
        "sum by (queu) (tidemill_queue_depth)",
        "rate(tidemill_queue_wait_seconds[5m])",
        "1 > 0",
    ],
)
def test_what_would_be_found(expression: str) -> None:
    assert wrong(expression)
