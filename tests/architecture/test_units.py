"""systemd units and Kubernetes manifests: the commands and probes of the compose file, and no more rights."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.clock import duration
from tests.kit import compose
from tests.kit.process import ROOT

SYSTEMD, KUBERNETES = ROOT / "deploy" / "systemd", ROOT / "deploy" / "kubernetes"
SERVICES = {name: each for name, each in compose.services().items() if each.ours}
UNITS = {
    path.name.removeprefix("tidemill-").removesuffix(".service").rstrip("@"): path for path in SYSTEMD.glob("*.service")
}
ANALYZE = shutil.which("systemd-analyze")
#: As `systemd-analyze security` counts, from 0 to 10.
EXPOSURE = 2.0
GRACE = duration("30s")
COMMON = (SYSTEMD / "tidemill-.service.d" / "common.conf").read_text()


def started(path: Path) -> list[str]:
    found = re.search(r"^ExecStart=(.+)$", path.read_text(), re.MULTILINE)
    assert found is not None
    return shlex.split(found[1])


def test_there_is_a_unit_for_each_service_with_its_command() -> None:
    assert UNITS.keys() == SERVICES.keys()
    for name, path in UNITS.items():
        program, *words = started(path)
        assert program.startswith("/opt/tidemill/bin/")
        command = [Path(program).name, *words]
        text = " ".join(command).replace("%%h", "%h").replace("127.0.0.1", "0.0.0.0")  # noqa: S104
        text = text.replace("%i@", "general@").replace("${QUEUES}", "jobs").replace("${CHILDREN}", "4")
        assert text in " ".join(SERVICES[name].command), name


def test_the_programs_of_the_units_exist() -> None:
    for path in UNITS.values():
        assert (Path(sys.executable).parent / Path(started(path)[0]).name).exists()


def test_workers_may_end_their_work_before_they_are_killed() -> None:
    for name in ("worker", "control", "console", "rpc"):
        text = UNITS[name].read_text()
        waits = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
        assert waits is not None
        assert duration(f"{waits[1]}s") >= GRACE + duration("15s")
        assert ("KillMode=mixed" in text) == (name in ("worker", "control"))


def test_what_all_units_share_takes_nothing_back_that_one_says() -> None:
    """systemd reads it after the unit."""
    shared = set(re.findall(r"^(\w+)=", COMMON, re.MULTILINE)) - {"Environment", "EnvironmentFile", "LoadCredential"}
    for path in UNITS.values():
        assert not shared & set(re.findall(r"^(\w+)=", path.read_text(), re.MULTILINE)), path.name


def test_no_unit_holds_a_secret() -> None:
    for path in UNITS.values():
        assert not re.search(r"^Environment=.*(PASSWORD|TOKEN|AUTH|_URL)=", path.read_text(), re.MULTILINE)
    assert "owner_url" not in COMMON + "".join(UNITS[name].read_text() for name in UNITS if name != "migrate")


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """With the programs of this environment."""
    shutil.copytree(SYSTEMD, tmp_path / "units")
    for path in (tmp_path / "units").glob("*.service"):
        path.write_text(path.read_text().replace("/opt/tidemill/bin", str(Path(sys.executable).parent)))
    template = tmp_path / "units" / "tidemill-worker@.service"
    shutil.copy(template, template.with_name("tidemill-worker@mail.service"))
    return tmp_path / "units"


def analyze(units: Path, *words: str) -> str:
    assert ANALYZE is not None
    env = {"SYSTEMD_UNIT_PATH": f"{units}:", "PATH": "/usr/bin:/bin", "SYSTEMD_COLORS": "0"}
    done = subprocess.run([ANALYZE, *words], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze on this machine")
def test_systemd_understands_the_units(units: Path) -> None:
    paths = [str(path) for path in units.glob("tidemill*") if path.is_file() and not path.name.endswith("@.service")]
    assert str(units) not in analyze(units, "verify", "--man=no", *paths)


@pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze on this machine")
def test_the_units_have_few_rights(units: Path) -> None:
    said = analyze(units, "security", "--offline=true", "--no-pager", str(units / "tidemill-beat.service"))
    found = re.search(r"Overall exposure level for .*: ([\d.]+)", said)
    assert found is not None
    assert float(found[1]) <= EXPOSURE


# Kubernetes


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(KUBERNETES.glob("*.yaml")):
        for each in yaml.safe_load_all(path.read_text()):
            yield path.name, each


PODS = {
    name.removesuffix(".yaml"): each["spec"]["template"]["spec"]
    for name, each in documents()
    if each["kind"] in ("Deployment", "Job")
}


def test_there_are_manifests_for_each_service_with_its_command() -> None:
    assert PODS.keys() == SERVICES.keys()
    for name, pod in PODS.items():
        (container,) = pod["containers"]
        assert container["command"] == SERVICES[name].command, name
        assert container["image"] == SERVICES[name].data["image"]


def test_settings_are_those_of_the_compose_file() -> None:
    config = next(each["data"] for _, each in documents() if each["kind"] == "ConfigMap")
    for name, pod in PODS.items():
        (container,) = pod["containers"]
        given = {each["name"]: each["value"] for each in container.get("env", [])}
        wanted = SERVICES[name].environment
        assert {**config, **given}.keys() == wanted.keys(), name
        assert given.items() <= wanted.items()
        assert container["envFrom"] == [{"configMapRef": {"name": "tidemill"}}]


@pytest.mark.parametrize("name", sorted(set(PODS) - {"migrate"}))
def test_probes_are_the_health_checks_and_only_what_a_start_helps_starts_again(name: str) -> None:
    (container,) = PODS[name]["containers"]
    health = SERVICES[name].health
    assert container["readinessProbe"]["exec"]["command"] == health
    assert container["livenessProbe"]["exec"]["command"] == [*health, "--live"]
    assert container["startupProbe"]["exec"]["command"] == [*health, "--live"]


@pytest.mark.parametrize("name", sorted(PODS))
def test_every_pod_runs_without_rights(name: str) -> None:
    pod = PODS[name]
    (container,) = pod["containers"]
    user = re.search(r"^USER (\d+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert user is not None
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == int(user[1])
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    # Else a Service named after one of ours would set its settings.
    assert pod["enableServiceLinks"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "memory" in container["resources"]["limits"]
    waits = duration(str(SERVICES[name].data.get("stop_grace_period", "10s")))
    assert pod["terminationGracePeriodSeconds"] >= waits.total_seconds()


def test_only_the_migration_has_the_url_of_the_owner() -> None:
    used = {
        name: [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each]
        for name, pod in PODS.items()
    }
    assert used.pop("migrate") == ["tidemill-owner"]
    assert {name for names in used.values() for name in names} == {"tidemill"}
    assert [name for name, each in documents() if each["kind"] == "Secret"] == []


def test_all_but_the_migration_is_applied_at_once() -> None:
    listed = next(each["resources"] for _, each in documents() if each["kind"] == "Kustomization")
    assert sorted(listed) == sorted({name for name, _ in documents()} - {"kustomization.yaml", "migrate.yaml"})


def test_services_and_budgets_choose_pods_that_exist() -> None:
    labels = [each["spec"]["template"]["metadata"]["labels"] for _, each in documents() if each["kind"] == "Deployment"]
    for _, each in documents():
        if each["kind"] == "Service":
            assert each["spec"]["selector"] in labels
        if each["kind"] == "PodDisruptionBudget":
            assert each["spec"]["selector"]["matchLabels"] in labels
